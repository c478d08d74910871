"""From the captured graph to a program: one step for every operation, in the order of the graph.

What depends on constants alone is computed here, once. An operation that `covered.py` knows becomes its step, any other
one a step in torch, so every model becomes a program.
"""

import operator
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import TreeSpec

from .capture import Captured
from .operation import NotCovered, Operation
from .operations import COVERED
from .program import InTorch, Program, Shape, Step
from .torch_call import Read, TorchCall

__all__ = ["Lowered", "lower"]


@dataclass(frozen=True)
class Lowered:
    """A program, and what the model's answer is made of: values of the program (`Read`) and plain constants."""

    program: Program
    leaves: tuple[Any, ...]
    out_spec: TreeSpec


def lower(captured: Captured) -> Lowered:
    """Translate the graph; nothing is optimised yet."""
    walk = _Walk(captured)
    for node in captured.graph.nodes:
        walk.take(node)
    leaves = tuple(walk.known[leaf] if isinstance(leaf, fx.Node) else leaf for leaf in captured.outputs)
    for leaf in leaves:
        if isinstance(leaf, TorchCall):
            raise ValueError(
                f"the model returns a number that it takes out of a tensor ({leaf.function}); "
                "let it return the tensor"
            )
    outputs = dict.fromkeys(leaf.name for leaf in leaves if isinstance(leaf, Read))
    program = Program(
        steps=tuple(walk.steps), shapes=walk.shapes, inputs=captured.inputs, outputs=tuple(outputs)
    )
    return Lowered(program, leaves, captured.out_spec)


class _Walk:
    """What is known of every node: a value (`Read`), a call that torch makes where it is needed, or a constant."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.known: dict[fx.Node, Any] = {}
        self.steps: list[Step] = []
        self.shapes: dict[str, Shape] = {}
        self.names: Counter[str] = Counter()

    def take(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self.known[node] = self._placeholder(node)
        elif node.op == "get_attr":
            self.known[node] = self.captured.attributes[str(node.target)]
        elif node.op == "call_function" and node.meta.get("val") is not None:  # None: a check that passed
            self.known[node] = self._called(node)

    def _placeholder(self, node: fx.Node) -> Any:
        if node.name in self.captured.constants:
            return self.captured.constants[node.name].detach()
        if node.name not in self.captured.inputs:
            return node.meta.get("val")  # a plain value in the caller's arguments
        self.shapes[node.name] = _shape(node)
        return Read(node.name)

    def _called(self, node: fx.Node) -> Any:
        assert callable(node.target)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.known.__getitem__)
        call = TorchCall(node.target, tuple(args), dict(kwargs))
        if not call.sources and not _is_random(node.target):
            return call.evaluate({})
        if not isinstance(node.meta["val"], Tensor):
            return call
        self.shapes[node.name] = _shape(node)
        step = self._step(node, call)
        if isinstance(step, Read):
            return step  # the same numbers as another value
        self.steps.append(step)
        return Read(node.name)

    def _step(self, node: fx.Node, call: TorchCall) -> Step | Read:
        try:
            made = COVERED.get(_function(call), _unknown)(Operation(node, call, self.shapes))
        except NotCovered as refusal:
            made = InTorch(
                name=node.name, sources=call.sources, target=node.name, function=call, why=str(refusal)
            )
        if isinstance(made, Read):
            return made
        return replace(made, name=self._name(node, call))

    def _name(self, node: fx.Node, call: TorchCall) -> str:
        """Return what a report calls the step: torch's own module by its path, others with the operator."""
        stack = node.meta.get("nn_module_stack") or {}
        path, kind = next(((p, k) for p, k, *_ in reversed(list(stack.values())) if p), ("", ""))
        kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        operator_name = str(getattr(_function(call), "__name__", call.function)).split(".")[0]
        is_torchs = kind.startswith("torch.nn.modules.") and operator_name.strip("_") in OF_ITS_MODULE
        name = path if is_torchs else f"{path}.{operator_name}".lstrip(".")
        self.names[name] += 1
        return name if self.names[name] == 1 else f"{name} ({self.names[name]})"


# Operators that are what their module does, so that its path is name enough.
OF_ITS_MODULE = {
    "conv2d",
    "linear",
    "batch_norm",
    "native_batch_norm_legit_no_training",
    "relu",
    "max_pool2d",
}


def _function(call: TorchCall) -> Any:
    """Return the operator; for an item of a tuple the operator that makes the tuple."""
    if call.function is operator.getitem and isinstance(call.args[0], TorchCall):
        return call.args[0].function
    return call.function


def _unknown(operation: Operation) -> Step:
    raise NotCovered("the engine has no such step")


def _shape(node: fx.Node) -> Shape:
    return tuple(int(size) for size in node.meta["val"].shape)


def _is_random(function: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())
