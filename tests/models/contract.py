"""What every network of the catalogue promises. Each function takes the name of one and fails if it is not kept."""

from collections.abc import Callable
from inspect import signature

import torch
from torch import Tensor, nn

import st3
from st3.models import MODELS

__all__ = ["CONTRACT"]

Promise = Callable[[str], None]
CONTRACT: list[Promise] = []


def promise(check: Promise) -> Promise:
    CONTRACT.append(check)
    return check


def build(name: str, **arguments: int) -> nn.Module:
    """Build the network from a fixed seed, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return MODELS[name](**arguments)


def pictures(name: str, count: int, channels: int | None = None) -> Tensor:
    """Return random pictures of the shape that the network was made for."""
    usual, height, width = MODELS.shape(name)
    shape = (count, channels or usual, height, width)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@promise
def it_takes_its_usual_pictures_and_gives_one_score_per_class(name: str) -> None:
    defaults = {key: parameter.default for key, parameter in signature(MODELS[name]).parameters.items()}
    assert defaults["channels"] == MODELS.shape(name)[0]
    with torch.device("meta"):
        scores = MODELS[name]()(torch.empty(2, *MODELS.shape(name)))
    assert scores.shape == (2, defaults["classes"])


@promise
def it_honours_classes_and_channels(name: str) -> None:
    _, height, width = MODELS.shape(name)
    with torch.device("meta"):
        model = MODELS[name](classes=7, channels=5)
        assert model(torch.empty(2, 5, height, width)).shape == (2, 7)


@promise
def the_seed_determines_its_weights(name: str) -> None:
    once, again = (build(name, classes=3).state_dict() for _ in range(2))
    assert all(torch.equal(once[key], again[key]) for key in once)


@promise
def every_parameter_gets_a_gradient(name: str) -> None:
    model = build(name, classes=3, channels=2)
    model(pictures(name, 2, channels=2)).logsumexp(1).sum().backward()
    assert [key for key, parameter in model.named_parameters() if parameter.grad is None] == []


@promise
def it_has_weights_that_can_be_made_sparse(name: str) -> None:
    assert st3.report(build(name, classes=3)).rows


@promise
@torch.no_grad()
def in_evaluation_a_picture_is_scored_by_itself(name: str) -> None:
    model, both = build(name, classes=3).eval(), pictures(name, 2)
    torch.testing.assert_close(model(both)[:1], model(both[:1]), rtol=1e-3, atol=1e-4)
