"""Translate a captured graph to a program: one step for every call, in the order of the graph.

Calls that depend on constants alone are evaluated here. A call without a translator becomes a step in torch, so every
model can be translated. The values of a program are float32 tensors: other results (masks, tuples, numbers) are
computed inside the torch steps that need them. So are views, which cost torch nothing and a program a copy.
"""

import math
import operator
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import TreeSpec

from ..program import InTorch, Program, Reshape, Shape, Step
from . import attention, elementwise, layers  # noqa: F401 -- fill the table of translators
from .aten_call import COPIES, COVERED, NO_STEP, AtenCall, NotCovered, fixed_shape
from .capture import CapturedGraph
from .shapes import RESHAPES, VIEWS, select_channels
from .torch_call import (
    Read,
    TorchCall,
    as_view,
    float_bits_shape,
    from_float_bits,
    substitute,
    to_float_bits,
)

__all__ = ["Translation", "translate"]


@dataclass(frozen=True)
class Translation:
    """A program, the leaves of the model's output (values, torch calls, constants), and the buffers that are states."""

    program: Program
    leaves: tuple[Any, ...]
    states: tuple[str, ...]
    out_spec: TreeSpec


def translate(captured: CapturedGraph) -> Translation:
    """Translate the graph; nothing is optimised yet."""
    walk = _Walk(captured)
    for node in captured.graph.nodes:
        walk.visit(node)
    known = (walk.known[leaf] if isinstance(leaf, fx.Node) else leaf for leaf in captured.outputs)
    leaves = substitute(tuple(known), walk.as_value)
    read = [leaf.name for leaf in leaves if isinstance(leaf, Read)]
    read += [name for leaf in leaves if isinstance(leaf, TorchCall) for name in leaf.sources]
    becomes = [walk.as_bits(walk.known[state.becomes]) for state in captured.states.values()]
    program = Program(
        steps=tuple(walk.steps),
        shapes=walk.shapes,
        inputs=(*captured.inputs, *captured.states),
        outputs=(*dict.fromkeys(read), *becomes),
        state_count=len(becomes),
    )
    states = tuple(state.buffer for state in captured.states.values())
    return Translation(program, leaves, states, captured.out_spec)


class _Walk:
    """Visits the nodes in order; `known` maps each to a value (`Read`), a deferred call, or a constant."""

    def __init__(self, captured: CapturedGraph) -> None:
        self.captured = captured
        self.known: dict[fx.Node, Any] = {}
        self.steps: list[Step] = []
        self.shapes: dict[str, Shape] = {}
        self.nodes: dict[str, fx.Node] = {}
        self.names: Counter[str] = Counter()

    def visit(self, node: fx.Node) -> None:
        self.nodes[node.name] = node
        if node.op == "placeholder":
            self.known[node] = self._visit_placeholder(node)
        elif node.op == "get_attr":
            self.known[node] = self.captured.attributes[str(node.target)]
        elif node.op == "call_function" and node.meta.get("val") is not None:  # None: a check that passed
            self.known[node] = self._visit_call(node)

    def as_value(self, part: Read | TorchCall) -> Read | TorchCall:
        """Return a call's result as a value, adding a torch step if needed; the call itself if it cannot be one."""
        if isinstance(part, Read) or not part.is_value:
            return part
        if part.name not in self.shapes:
            step = (
                select_channels(part, self.shapes, self.steps)
                or self._reshape(part)
                or _in_torch(part, NO_STEP)
            )
            self._add_step(step, self.nodes[part.name], part)
        return Read(part.name)

    def as_bits(self, part: Any) -> str:
        """Return the value of that name, or of the bits of a tensor of another type."""
        made = self.as_value(part) if isinstance(part, Read | TorchCall) else part
        if isinstance(made, Read):
            return made.name
        if not isinstance(made, TorchCall):
            raise ValueError(
                "a buffer that the model changes becomes a constant; the engine cannot keep it between calls"
            )
        node = self.nodes[made.name]
        call = TorchCall(to_float_bits, (made,), {}, f"{made.name}:bits", is_value=True)
        if call.name not in self.shapes:
            self._add_step(
                _in_torch(call, NO_STEP),
                node,
                call,
                float_bits_shape(node.meta["val"].dtype, fixed_shape(node)),
            )
        return call.name

    def _reshape(self, part: TorchCall) -> Step | None:
        """Return the step if a view has all elements of a value in their order."""
        found = as_view(part, self.shapes) if _is_made_of_views(part) else None
        if (
            not found
            or not found[1].is_whole
            or math.prod(found[1].shape) != math.prod(self.shapes[found[0]])
        ):
            return None
        return Reshape(name="", sources=(found[0],), target=part.name)

    def _visit_placeholder(self, node: fx.Node) -> Any:
        if node.name in self.captured.constants:
            return self.captured.constants[node.name].detach()
        if node.name not in (*self.captured.inputs, *self.captured.states):
            return node.meta.get("val")  # a plain value in the caller's arguments
        dtype, shape = node.meta["val"].dtype, fixed_shape(node)
        self.shapes[node.name] = float_bits_shape(dtype, shape)
        if dtype is torch.float32:
            return Read(node.name)
        return TorchCall(from_float_bits, (Read(node.name), dtype, shape), {}, node.name, is_value=False)

    def _visit_call(self, node: fx.Node) -> Any:
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
                call = replace(
                    call, function=torch.reshape, args=(call.args[0], fixed_shape(node)), kwargs={}
                )
                shuffle = select_channels(call, self.shapes, self.steps)
                return self._add_step(shuffle, node, call) if shuffle else call
        step = self._translate_call(node, call)
        return self._add_step(step, node, call) if isinstance(step, Step) else step

    def _translate_call(self, node: fx.Node, call: TorchCall) -> Step | Read | TorchCall:
        translate_one = COVERED.get(_operator(call))
        if translate_one is None:
            return _in_torch(call, NO_STEP)
        try:
            added: list[tuple[Step, Shape]] = []
            op = AtenCall(
                node, call, self.shapes, self.as_value, lambda step, shape: added.append((step, shape))
            )
            step = translate_one(op)
            for part, shape in added:  # only now: a refused call adds nothing
                self._add_step(part, node, call, shape)
            return step
        except NotCovered as refusal:
            return _in_torch(call, str(refusal))

    def _add_step(self, step: Step, node: fx.Node, call: TorchCall, shape: Shape | None = None) -> Read:
        self.shapes[step.target] = fixed_shape(node) if shape is None else shape
        self.steps.append(replace(step, name=self._name(node, call)))
        return Read(step.target)

    def _name(self, node: fx.Node, call: TorchCall) -> str:
        """Return the step's name in the report: the path of its module, and the operator unless that is obvious."""
        stack = node.meta.get("nn_module_stack") or {}
        path, kind = next(((p, k) for p, k, *_ in reversed(list(stack.values())) if p), ("", ""))
        kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        operator_name = str(getattr(_operator(call), "__name__", call.function)).partition(".")[0]
        is_torchs = kind.startswith("torch.nn.modules.") and operator_name.strip("_") in OF_ITS_MODULE
        name = path if is_torchs else f"{path}.{operator_name}".lstrip(".")
        self.names[name] += 1
        return name if self.names[name] == 1 else f"{name} ({self.names[name]})"


# Operators that are all their module does, so that its path is a sufficient name.
OF_ITS_MODULE = {
    "conv2d",
    "linear",
    "batch_norm",
    "native_batch_norm_legit_no_training",
    "relu",
    "max_pool2d",
}


def _is_made_of_views(part: Any) -> bool:
    """Return whether a call and all calls in its arguments return views, or reshape."""
    if isinstance(part, Read):
        return True
    is_view = part.function in VIEWS or part.function in RESHAPES or part.function is torch.reshape
    is_item = part.function is operator.getitem
    inner = [each for each in part.args if isinstance(each, Read | TorchCall)]
    return (is_view or is_item) and len(inner) == 1 and _is_made_of_views(inner[0])


def _in_torch(call: TorchCall, why: str) -> Step:
    return InTorch(name="", sources=call.sources, target=call.name, function=call, why=why)


def _operator(call: TorchCall) -> Any:
    """Return the operator; for an item of a tuple, the operator that returns the tuple."""
    if call.function is operator.getitem and isinstance(call.args[0], TorchCall):
        return call.args[0].function
    return call.function


def _is_value(node: fx.Node) -> bool:
    result = node.meta["val"]
    return isinstance(result, Tensor) and result.dtype is torch.float32


def _is_random(function: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())
