"""Multiply-adds of single operations, worked out by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from st3.measure import MacCount, count_macs


def pictures(*shape: int) -> Tensor:
    return torch.ones(*shape)


@pytest.mark.parametrize(
    ("layer", "example", "macs"),
    [
        # weights × positions of the output × batch
        pytest.param(nn.Conv2d(3, 8, 3), pictures(1, 3, 10, 10), (8 * 3 * 9) * (8 * 8), id="plain"),
        pytest.param(nn.Conv2d(3, 8, 3), pictures(4, 3, 10, 10), (8 * 3 * 9) * (8 * 8) * 4, id="batch"),
        pytest.param(nn.Conv2d(3, 8, 3), pictures(3, 10, 10), (8 * 3 * 9) * (8 * 8), id="no batch axis"),
        pytest.param(nn.Conv2d(3, 8, 3, 2, 1), pictures(1, 3, 10, 10), (8 * 3 * 9) * (5 * 5), id="strided"),
        pytest.param(
            nn.Conv2d(3, 8, 3, dilation=2), pictures(1, 3, 10, 10), (8 * 3 * 9) * (6 * 6), id="dilated"
        ),
        pytest.param(
            nn.Conv2d(6, 8, 3, groups=2), pictures(1, 6, 10, 10), (8 * 3 * 9) * (8 * 8), id="grouped"
        ),
        pytest.param(nn.Conv2d(6, 6, 3, groups=6), pictures(1, 6, 10, 10), (6 * 9) * (8 * 8), id="depthwise"),
        pytest.param(
            nn.Conv2d(3, 8, 3, padding="same"), pictures(1, 3, 10, 10), (8 * 3 * 9) * 100, id="same size"
        ),
        pytest.param(nn.Conv1d(3, 8, 5), pictures(2, 3, 10), (8 * 3 * 5) * 6 * 2, id="one axis"),
        pytest.param(
            nn.Conv3d(3, 8, 3), pictures(1, 3, 5, 6, 7), (8 * 3 * 27) * (3 * 4 * 5), id="three axes"
        ),
        # weights × positions of the input × batch
        pytest.param(
            nn.ConvTranspose1d(3, 8, 4, 2), pictures(2, 3, 10), (3 * 8 * 4) * 10 * 2, id="transposed 1d"
        ),
        pytest.param(
            nn.ConvTranspose2d(3, 8, 2, 2), pictures(1, 3, 5, 5), (3 * 8 * 4) * 25, id="transposed 2d"
        ),
        pytest.param(
            nn.ConvTranspose3d(3, 8, 2), pictures(1, 3, 2, 3, 4), (3 * 8 * 8) * 24, id="transposed 3d"
        ),
        pytest.param(
            nn.ConvTranspose2d(6, 8, 2, 2, groups=2),
            pictures(1, 6, 5, 5),
            (6 * 4 * 4) * 25,
            id="transposed, grouped",
        ),
        # weights × rows
        pytest.param(nn.Linear(20, 10), pictures(20), 200, id="linear, one row"),
        pytest.param(nn.Linear(20, 10), pictures(7, 20), 200 * 7, id="linear"),
        pytest.param(nn.Linear(20, 10), pictures(2, 7, 20), 200 * 14, id="linear on three axes"),
        pytest.param(
            nn.Linear(20, 10, bias=False), pictures(2, 3, 7, 20), 200 * 42, id="linear on four axes"
        ),
    ],
)
def test_a_layer_costs_its_weights_times_the_positions_they_are_applied_to(
    layer: nn.Module, example: Tensor, macs: int
) -> None:
    count = count_macs(layer, example)
    assert count.of(layer.get_parameter("weight")) == macs
    assert count.total == macs
    assert count.activation_macs == 0
    assert count.uncounted == ()


def test_a_bias_and_a_norm_cost_nothing() -> None:
    with_bias = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    assert count_macs(with_bias, pictures(1, 3, 10, 10)).total == (8 * 3 * 9) * (8 * 8)


class Call(nn.Module):
    """A model without parameters that calls a function."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def between_activations(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> MacCount:
    return count_macs(Call(function), tuple(torch.ones(shape) for shape in shapes))


@pytest.mark.parametrize(
    ("function", "shapes", "macs"),
    [
        pytest.param(torch.mm, [(2, 3), (3, 4)], 24, id="mm"),
        pytest.param(torch.addmm, [(4,), (2, 3), (3, 4)], 24, id="addmm"),
        pytest.param(torch.bmm, [(5, 2, 3), (5, 3, 4)], 120, id="bmm"),
        pytest.param(torch.baddbmm, [(5, 2, 4), (5, 2, 3), (5, 3, 4)], 120, id="baddbmm"),
        pytest.param(torch.addbmm, [(2, 4), (5, 2, 3), (5, 3, 4)], 120, id="addbmm"),
        pytest.param(torch.mv, [(2, 3), (3,)], 6, id="mv"),
        pytest.param(torch.addmv, [(2,), (2, 3), (3,)], 6, id="addmv"),
        pytest.param(torch.dot, [(3,), (3,)], 3, id="dot"),
        pytest.param(torch.matmul, [(5, 2, 3), (3, 4)], 120, id="matmul"),
        pytest.param(
            lambda a, b: torch.einsum("bij,bjk->bik", a, b), [(5, 2, 3), (5, 3, 4)], 120, id="einsum"
        ),
        pytest.param(F.linear, [(7, 3), (4, 3)], 84, id="linear"),
        pytest.param(F.conv2d, [(1, 3, 5, 5), (2, 3, 3, 3)], 54 * 9, id="conv2d"),
    ],
)
def test_products_of_two_activations_are_counted_separately(
    function: Callable[..., Tensor], shapes: list[tuple[int, ...]], macs: int
) -> None:
    count = between_activations(function, *shapes)
    assert count.activation_macs == macs
    assert count.by_parameter == ()


@pytest.mark.parametrize(
    "backend", [torch.nn.attention.SDPBackend.MATH, torch.nn.attention.SDPBackend.FLASH_ATTENTION]
)
def test_attention_multiplies_twice_for_every_pair_of_query_and_key(
    backend: torch.nn.attention.SDPBackend,
) -> None:
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with torch.nn.attention.sdpa_kernel(backend):
            return F.scaled_dot_product_attention(query, key, value)

    # batch 2, heads 3, 5 queries, 7 keys, 8 numbers each
    count = between_activations(attend, (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    assert count.activation_macs == 2 * 3 * 5 * 7 * (8 + 8)


def test_each_token_of_a_mixture_is_multiplied_by_one_expert() -> None:
    tokens, experts = torch.ones(16, 8, dtype=torch.bfloat16), torch.ones(4, 8, 24, dtype=torch.bfloat16)
    ends = torch.tensor([2, 4, 8, 16], dtype=torch.int32)
    count = count_macs(Call(lambda a, b: torch._grouped_mm(a, b, offs=ends)), (tokens, experts))
    assert count.activation_macs == 16 * 8 * 24
