"""From the captured graph to a program: one step for every operation, in the order of the graph.

What depends on constants alone is computed here, once. An operation that has a step of its own becomes that step, any
other one a step in torch, so every model becomes a program. Values of a program are float32 tensors: what is none (a
mask, a tuple, a number) is computed inside the torch steps that need it. So are mere views, which torch makes for
nothing and a program would have to copy.
"""

import operator
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import TreeSpec

from .capture import Captured
from .carried import carried_shape, restored
from .operation import NotCovered, Operation
from .operations import COVERED
from .operations.shapes import COPIES, RESHAPES, VIEWS
from .program import InTorch, Program, Shape, Step
from .torch_call import Read, TorchCall, replaced

__all__ = ["Translated", "translate"]


@dataclass(frozen=True)
class Translated:
    """A program, and what the model's answer is made of: values, what torch makes of values, plain constants."""

    program: Program
    leaves: tuple[Any, ...]
    out_spec: TreeSpec


def translate(captured: Captured) -> Translated:
    """Translate the graph; nothing is optimised yet."""
    walk = _Walk(captured)
    for node in captured.graph.nodes:
        walk.take(node)
    known = (walk.known[leaf] if isinstance(leaf, fx.Node) else leaf for leaf in captured.outputs)
    leaves = replaced(tuple(known), walk.made)
    read = [leaf.name for leaf in leaves if isinstance(leaf, Read)]
    read += [name for leaf in leaves if isinstance(leaf, TorchCall) for name in leaf.sources]
    program = Program(
        steps=tuple(walk.steps),
        shapes=walk.shapes,
        inputs=captured.inputs,
        outputs=tuple(dict.fromkeys(read)),
    )
    return Translated(program, leaves, captured.out_spec)


class _Walk:
    """What is known of every node: a value (`Read`), a call that torch makes where it is needed, or a constant."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.known: dict[fx.Node, Any] = {}
        self.steps: list[Step] = []
        self.shapes: dict[str, Shape] = {}
        self.nodes: dict[str, fx.Node] = {}
        self.names: Counter[str] = Counter()

    def take(self, node: fx.Node) -> None:
        self.nodes[node.name] = node
        if node.op == "placeholder":
            self.known[node] = self._placeholder(node)
        elif node.op == "get_attr":
            self.known[node] = self.captured.attributes[str(node.target)]
        elif node.op == "call_function" and node.meta.get("val") is not None:  # None: a check that passed
            self.known[node] = self._called(node)

    def made(self, part: Read | TorchCall) -> Read | TorchCall:
        """Return the value that a call makes, by a step of torch if there is none yet; itself if it makes none."""
        if isinstance(part, Read) or not part.is_value:
            return part
        if part.name not in self.shapes:
            self._add(_in_torch(part, NO_STEP), self.nodes[part.name], part)
        return Read(part.name)

    def _placeholder(self, node: fx.Node) -> Any:
        if node.name in self.captured.constants:
            return self.captured.constants[node.name].detach()
        if node.name not in self.captured.inputs:
            return node.meta.get("val")  # a plain value in the caller's arguments
        dtype, shape = node.meta["val"].dtype, _shape(node)
        self.shapes[node.name] = carried_shape(dtype, shape)
        if dtype is torch.float32:
            return Read(node.name)
        return TorchCall(restored, (Read(node.name), dtype, shape), {}, node.name, is_value=False)

    def _called(self, node: fx.Node) -> Any:
        assert callable(node.target)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.known.__getitem__)
        call = TorchCall(node.target, tuple(args), dict(kwargs), node.name, _is_value(node))
        if not call.sources and not _is_random(node.target):
            return call.evaluate({})
        if not call.is_value or _operator(call) in VIEWS:
            return call
        if isinstance(call.args[0] if call.args else None, TorchCall) and call.args[0].is_value:
            if call.function in COPIES:
                return call.args[0]
            if call.function in RESHAPES:  # `view` would refuse a view with other strides
                return replace(call, function=torch.reshape, args=(call.args[0], _shape(node)), kwargs={})
        step = self._step(node, call)
        return step if isinstance(step, Read) else self._add(step, node, call)

    def _step(self, node: fx.Node, call: TorchCall) -> Step | Read:
        translate_one = COVERED.get(_operator(call))
        if translate_one is None:
            return _in_torch(call, NO_STEP)
        try:
            return translate_one(Operation(node, call, self.shapes, self.made))
        except NotCovered as refusal:
            return _in_torch(call, str(refusal))

    def _add(self, step: Step, node: fx.Node, call: TorchCall) -> Read:
        self.shapes[step.target] = _shape(node)
        self.steps.append(replace(step, name=self._name(node, call)))
        return Read(step.target)

    def _name(self, node: fx.Node, call: TorchCall) -> str:
        """Return what a report calls the step: torch's own module by its path, others with the operator."""
        stack = node.meta.get("nn_module_stack") or {}
        path, kind = next(((p, k) for p, k, *_ in reversed(list(stack.values())) if p), ("", ""))
        kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        operator_name = str(getattr(_operator(call), "__name__", call.function)).partition(".")[0]
        is_torchs = kind.startswith("torch.nn.modules.") and operator_name.strip("_") in OF_ITS_MODULE
        name = path if is_torchs else f"{path}.{operator_name}".lstrip(".")
        self.names[name] += 1
        return name if self.names[name] == 1 else f"{name} ({self.names[name]})"


NO_STEP = "the engine has no such step"

# Operators that are what their module does, so that its path is name enough.
OF_ITS_MODULE = {
    "conv2d",
    "linear",
    "batch_norm",
    "native_batch_norm_legit_no_training",
    "relu",
    "max_pool2d",
}


def _in_torch(call: TorchCall, why: str) -> Step:
    return InTorch(name="", sources=call.sources, target=call.name, function=call, why=why)


def _operator(call: TorchCall) -> Any:
    """Return the operator; for an item of a tuple the operator that makes the tuple."""
    if call.function is operator.getitem and isinstance(call.args[0], TorchCall):
        return call.args[0].function
    return call.function


def _shape(node: fx.Node) -> Shape:
    return tuple(int(size) for size in node.meta["val"].shape)


def _is_value(node: fx.Node) -> bool:
    made = node.meta["val"]
    return isinstance(made, Tensor) and made.dtype is torch.float32


def _is_random(function: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())
