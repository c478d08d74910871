"""Initial weights: their standard deviation, and norms that do nothing yet."""

import math

import pytest
import torch
from torch import nn

from st3.models.initialise import initialise
from st3.models.mobilenet import mobilenet_v1
from st3.models.resnet_cifar import resnet20


@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [
        (nn.Conv2d(32, 400, 3), 32 * 9),
        (nn.Conv2d(3000, 3000, 3, groups=3000), 9),
        (nn.Conv2d(64, 2000, 1, groups=2), 32),
        (nn.Linear(50, 2000), 50),
    ],
    ids=["convolution", "depthwise", "grouped", "linear"],
)
def test_the_standard_deviation_is_the_root_of_two_over_fan_in(
    layer: nn.Conv2d | nn.Linear, fan_in: int
) -> None:
    torch.manual_seed(0)
    initialise(layer)
    assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / fan_in), rel=0.02)
    assert layer.weight.mean().item() == pytest.approx(0, abs=0.02 * math.sqrt(2 / fan_in))


def test_batch_norms_start_as_the_identity() -> None:
    norm = nn.BatchNorm2d(3)
    nn.init.uniform_(norm.weight)
    nn.init.uniform_(norm.bias)
    initialise(norm)
    assert norm.weight.tolist() == [1, 1, 1]
    assert norm.bias.tolist() == [0, 0, 0]


def test_every_layer_of_a_network_is_initialised_like_this_even_the_classifier() -> None:
    torch.manual_seed(123)
    for model in (resnet20(), mobilenet_v1()):
        for name, weight in model.named_parameters():
            if weight.dim() >= 2:
                expected = math.sqrt(2 / weight[0].numel())
                deviation = 5 / math.sqrt(2 * weight.numel())  # five standard errors
                assert weight.std().item() == pytest.approx(expected, rel=deviation), name


def test_no_last_norm_of_a_block_starts_at_zero() -> None:
    weights = [m.weight for m in resnet20().modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(bool((weight == 1).all()) for weight in weights)
