"""What every network of the catalogue promises. Each function takes the name of one and fails if it is not kept."""

from collections.abc import Callable
from inspect import signature

import torch
from torch import Tensor, nn

import st3
from st3.models import MODELS
from st3.models.decoding import HasDecoder
from st3.training.tasks import TASKS, Task

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


def task_of(name: str) -> Task:
    return TASKS[MODELS.inputs(name).task]


def sizes(name: str, classes: int, size: int | None = None) -> dict[str, int]:
    """Return the network's arguments for that many classes and inputs of that first size, or of the usual one."""
    return task_of(name).sizes(classes, (size or MODELS.shape(name)[0],))


def examples(name: str, count: int, classes: int = 3, size: int | None = None) -> Tensor:
    """Return random inputs of the shape that the network was made for."""
    first, *others = MODELS.shape(name)
    generator = torch.Generator().manual_seed(0)
    return task_of(name).make_inputs(count, (size or first, *others), classes, generator)


@promise
def it_takes_its_usual_inputs_and_gives_one_score_per_class(name: str) -> None:
    defaults = {key: parameter.default for key, parameter in signature(MODELS[name]).parameters.items()}
    task, shape = task_of(name), MODELS.shape(name)
    classes, size = (defaults[key] for key in task.sizes(1, shape))
    assert size == shape[0]
    with torch.device("meta"):
        scores = MODELS[name]()(task.blank(2, shape))
    assert scores.shape == task.output_shape(2, shape, classes)


@promise
def it_honours_the_number_of_classes_and_the_size_of_inputs(name: str) -> None:
    task, shape = task_of(name), (5, *MODELS.shape(name)[1:])
    with torch.device("meta"):
        model = MODELS[name](**task.sizes(7, shape))
        assert model(task.blank(2, shape)).shape == task.output_shape(2, shape, 7)


@promise
def the_seed_determines_its_weights(name: str) -> None:
    once, again = (build(name, **sizes(name, 3)).state_dict() for _ in range(2))
    assert all(torch.equal(once[key], again[key]) for key in once)


@promise
def every_parameter_gets_a_gradient(name: str) -> None:
    model = build(name, **sizes(name, 3, 2))
    model(examples(name, 2, size=2)).logsumexp(-1).sum().backward()
    assert [key for key, parameter in model.named_parameters() if parameter.grad is None] == []


@promise
def it_has_weights_that_can_be_made_sparse(name: str) -> None:
    assert st3.report(build(name, **sizes(name, 3))).rows


@promise
@torch.no_grad()
def in_evaluation_an_example_is_scored_by_itself(name: str) -> None:
    model, both = build(name, **sizes(name, 3)).eval(), examples(name, 2)
    torch.testing.assert_close(model(both)[:1], model(both[:1]), rtol=1e-3, atol=1e-4)


@promise
@torch.no_grad()
def its_decoder_scores_a_text_in_parts_as_the_network_scores_the_whole(name: str) -> None:
    model, text = build(name, **sizes(name, 3)).eval(), examples(name, 1)
    if not isinstance(model, HasDecoder):
        return
    decoder, places = model.decoder().eval(), torch.arange(text.shape[1])
    parts = [part for part in (slice(0, 5), slice(5, 6), slice(6, None)) if places[part].numel()]
    scores = torch.cat([decoder(text[:, part], places[part]) for part in parts], dim=1)
    torch.testing.assert_close(scores, model(text), rtol=1e-3, atol=1e-4)
