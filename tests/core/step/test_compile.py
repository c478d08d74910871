"""Compiled and exported models: one graph, never compiled again as the threshold moves, and nothing of ours in it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.tiny import (
    TinyNet,
    adam,
    assert_same,
    batch,
    cubic,
    raw_weights,
    sgd,
    sparsify,
    train,
    zeros,
    zeros_asked,
)
from torch import nn
from torch._dynamo.backends.debugging import aot_eager
from torch.optim import Optimizer

import st3

pytestmark = pytest.mark.filterwarnings(
    "ignore::st3.errors.LayerCollapseWarning"
)  # tiny layers lose filters easily

STEPS = 30
RUN = {
    "total_steps": STEPS,
    "ramp": cubic(2, 25, STEPS),
}  # dense at first, then a new threshold after every step
METHODS = {
    "straight-through": st3.methods.ST3(),
    "not straight-through": st3.methods.ST3(straight_through=False),
}


@pytest.fixture(autouse=True)
def _forget_compiled_code() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class CountingBackend:
    """Compiles like `aot_eager` (forward and backward traced, run without code generation) and counts the graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.graphs += 1
        return aot_eager(graph, inputs)


def uncompiled(
    make: Callable[..., Optimizer], method: st3.methods.ST3
) -> tuple[TinyNet, Optimizer, list[float]]:
    model = TinyNet()
    optimizer = make(model.parameters())
    sparsify(model, optimizer, method=method, **RUN)
    return model, optimizer, train(model, optimizer, STEPS)


@pytest.mark.parametrize("compiled_first", [True, False])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_compiled_model_is_one_graph_and_trains_to_the_same_numbers(
    method: st3.methods.ST3, compiled_first: bool
) -> None:
    backend = CountingBackend()
    model = TinyNet()
    optimizer = sgd(model.parameters())
    if compiled_first:
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        sparsifier = sparsify(compiled, optimizer, method=method, **RUN)
    else:
        sparsifier = sparsify(model, optimizer, method=method, **RUN)
        compiled = torch.compile(model, backend=backend, fullgraph=True)
    assert [layer.name for layer in sparsifier.layers] == ["conv.weight", "deep.weight", "head.weight"]
    losses = train(compiled, optimizer, STEPS)
    assert backend.graphs == 1

    reference, its_optimizer, expected = uncompiled(sgd, method)
    assert losses == pytest.approx(expected, rel=1e-4)
    for name, raw in raw_weights(reference, its_optimizer).items():
        torch.testing.assert_close(raw_weights(model, optimizer)[name], raw, rtol=1e-3, atol=1e-5)
    sparsifier.finalize()
    assert zeros(model) == zeros_asked(model)


def test_freezing_a_compiled_model_needs_no_new_graph() -> None:
    backend = CountingBackend()
    model = TinyNet()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer, **RUN)
    train(compiled, optimizer, 26)
    sparsifier.freeze()
    train(compiled, optimizer, range(26, STEPS))
    sparsifier.finalize()
    assert backend.graphs == 1


@pytest.mark.parametrize(
    "make", [lambda p: sgd(p, foreach=True), lambda p: adam(p, foreach=True)], ids=["SGD", "Adam"]
)
def test_a_compiled_optimizer_step_trains_to_the_same_numbers(make: Callable[..., Optimizer]) -> None:
    _, _, expected = uncompiled(make, st3.methods.ST3())

    model = TinyNet()
    optimizer = make(model.parameters())
    sparsifier = sparsify(model, optimizer, **RUN)
    backend = CountingBackend()
    step = torch.compile(optimizer.step, backend=backend)
    losses = []
    for number in range(STEPS):
        pictures, classes = batch(number)
        loss = F.cross_entropy(model(pictures), classes)
        loss.backward()
        step()
        optimizer.zero_grad()
        losses.append(loss.item())
        assert sparsifier.step == number + 1
    assert backend.graphs <= 2  # the first step, which makes the momentum, and all the others
    assert losses == pytest.approx(expected, rel=1e-4)
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def operations(model: nn.Module) -> list[str]:
    program = torch.export.export(model.eval(), (batch(0)[0],))
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_an_export_in_mid_training_holds_no_operation_of_ours(method: st3.methods.ST3) -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsify(model, optimizer, method=method, **RUN)
    train(model, optimizer, 10)
    assert zeros(model) > 0
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert operations(model) == operations(TinyNet())
    assert_same(dict(model.state_dict()), before)


def test_an_exported_model_gives_the_outputs_of_the_model_and_holds_its_zeros() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsify(model, optimizer, **RUN)
    train(model, optimizer, 10)
    pictures, _ = batch(10)
    exported = torch.export.export(model.eval(), (pictures,)).module()
    torch.testing.assert_close(exported(pictures), model(pictures))
    assert zeros(exported) == zeros(model) > 0
