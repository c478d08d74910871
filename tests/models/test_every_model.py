"""What every registered network promises; a new one is tested as soon as it is registered."""

from inspect import signature

import pytest
import torch
from torch import nn

from st3.models import MODELS

# The largest picture side that the smallest network needs; every network pools at the end, so all can take it.
SIDE = 32


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_it_gives_one_score_per_class_and_picture(name: str) -> None:
    channels = signature(MODELS[name]).parameters["channels"].default
    classes = signature(MODELS[name]).parameters["classes"].default
    with torch.device("meta"):
        assert MODELS[name]()(torch.empty(2, channels, SIDE, SIDE)).shape == (2, classes)


def test_it_honours_classes_and_channels(name: str) -> None:
    with torch.device("meta"):
        model = MODELS[name](classes=7, channels=5)
        assert model(torch.empty(2, 5, SIDE, SIDE)).shape == (2, 7)


def test_its_convolutions_and_classifier_have_no_bias(name: str) -> None:
    with torch.device("meta"):
        model = MODELS[name]()
    assert all(m.bias is None for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear))


def test_only_weights_and_norms_are_trained(name: str) -> None:
    with torch.device("meta"):
        model = MODELS[name]()
    owners = {type(m) for m in model.modules() if any(True for _ in m.parameters(recurse=False))}
    assert owners <= {nn.Conv2d, nn.Linear, nn.BatchNorm2d}


def test_a_seed_determines_its_weights(name: str) -> None:
    def build() -> list[torch.Tensor]:
        torch.manual_seed(1)
        return [p.detach() for p in MODELS[name](classes=3).parameters()]

    assert all(torch.equal(a, b) for a, b in zip(build(), build(), strict=True))


def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = MODELS[name](classes=3, channels=2)
    model(torch.randn(2, 2, SIDE, SIDE)).logsumexp(1).sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
