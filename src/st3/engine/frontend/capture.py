"""Capture a model as a graph of aten operators with `torch.export`; if that fails, export its symbolic trace.

The graph is functional (no in-place operations) and its shapes are those of the example. It does not depend on the
values of the example: a model that branches on them is refused.
"""

import copy
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils._pytree import TreeSpec

__all__ = ["CapturedGraph", "capture"]

# How export marks a model that changes its own buffers or parameters.
STORES = (OutputKind.BUFFER_MUTATION, getattr(OutputKind, "PARAMETER_MUTATION", OutputKind.BUFFER_MUTATION))
# How export refuses an output that is not made of tensors and plain containers.
UNKNOWN_OUTPUT = re.compile(r"Found <class '(?:[\w.]+\.)?(\w+)'> in output, which is not a known type")


@dataclass(frozen=True)
class State:
    """A buffer that the model changes when it runs: its name in the model, and what it becomes."""

    buffer: str
    becomes: fx.Node


@dataclass(frozen=True)
class CapturedGraph:
    """The graph, the meaning of its placeholders, and the structure of the outputs."""

    graph: fx.Graph
    attributes: dict[str, Any]  # the targets of get_attr nodes
    constants: dict[str, Tensor]  # placeholder -> parameter, buffer or other tensor of the model
    inputs: tuple[str, ...]  # placeholders of the caller's arguments, in the order of their leaves
    outputs: tuple[Any, ...]  # fx nodes, or plain Python values
    states: dict[str, State]  # placeholder -> a buffer that the model changes
    out_spec: TreeSpec


def capture(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], known_states: Iterable[str] = ()
) -> CapturedGraph:
    """Capture the model, which must be in eval mode, for inputs of these shapes.

    `known_states` are buffers that the model changes for inputs of other shapes: they are states here, too.
    """
    with warnings.catch_warnings(), _without_stack_traces():
        warnings.simplefilter("ignore")  # torch's about itself
        exported = _export(model, args, kwargs)
    signature = exported.graph_signature
    constants, inputs = _placeholders(exported)
    leaves = next(node for node in exported.graph.nodes if node.op == "output").args[0]
    states = _states(model, exported, leaves, known_states)
    for name in states:
        del constants[name]
    outputs = tuple(
        leaf
        for leaf, output in zip(leaves, signature.output_specs, strict=True)
        if output.kind is OutputKind.USER_OUTPUT  # others are inputs that the model changes in place
    )
    attributes = {
        node.target: _attribute(exported.graph_module, node.target)
        for node in exported.graph.nodes
        if node.op == "get_attr"
    }
    out_spec = exported.call_spec.out_spec
    assert out_spec is not None
    return CapturedGraph(exported.graph, attributes, constants, inputs, outputs, states, out_spec)


@contextmanager
def _without_stack_traces() -> Iterator[None]:
    """Spare the stack trace of every node, a seventh of the time of an export; older torch has no such option."""
    config, name = getattr(fx, "config", None), "do_not_emit_stack_traces"
    before = getattr(config, name, None)
    if before is None:
        yield
        return
    setattr(config, name, True)
    try:
        yield
    finally:
        setattr(config, name, before)


def _export(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    def export(of: nn.Module) -> ExportedProgram:
        exported = torch.export.export(of, args, kwargs, strict=False)
        # As slow as the export, so only if needed.
        return exported if _is_functional(exported) else exported.run_decompositions({})

    ways: dict[str, Callable[[], ExportedProgram]] = {
        "torch.export": lambda: export(model),
        "torch.fx": lambda: export(_trace(model)),
    }
    failures = []
    for name, way in ways.items():
        try:
            return way()
        except Exception as error:  # the model's code may fail in any way on the tracer's fake tensors
            if found := UNKNOWN_OUTPUT.search(str(error)):
                raise ValueError(
                    f"{type(model).__name__} returns a {found[1]}, which torch.export cannot take apart; let it return "
                    "tensors only: for a causal language model, set use_cache=False in its config or its arguments"
                ) from error
            failures.append((f"{name}: {type(error).__name__}: {_first_line(error)}", error))
    raise ValueError(
        f"{type(model).__name__} cannot be captured as a graph; its forward pass may branch on computed values or "
        "compute outside torch: " + "; ".join(text for text, _ in failures)
    ) from failures[0][1]


def _trace(model: nn.Module) -> fx.GraphModule:
    """Return the symbolic trace of a copy: tracing runs what depends on buffers alone, such as `self.calls += 1`."""
    model_copy = copy.deepcopy(model)
    traced = fx.symbolic_trace(model_copy)
    if not all(map(torch.equal, model.buffers(), model_copy.buffers())):
        raise ValueError("tracing changes the model's buffers, and the trace would not")
    return traced


def _is_functional(exported: ExportedProgram) -> bool:
    """Return whether the graph has neither in-place operators nor nested graphs."""
    targets = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    return all(
        target is operator.getitem
        or (isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable)
        for target in targets
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else "no reason given"


def _placeholders(exported: ExportedProgram) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the model's tensors by placeholder, and the placeholders of the caller's arguments."""
    constants: dict[str, Tensor] = {}
    inputs = []
    for given in exported.graph_signature.input_specs:
        if isinstance(given.arg, ConstantArgument):
            continue  # a plain value, part of the graph
        name = given.arg.name
        if given.kind is InputKind.USER_INPUT:
            inputs.append(name)
            continue
        assert given.target is not None
        home = exported.constants if given.target in exported.constants else exported.state_dict
        constants[name] = home[given.target]
    return constants, tuple(inputs)


def _states(
    model: nn.Module, exported: ExportedProgram, leaves: Any, known: Iterable[str]
) -> dict[str, State]:
    """Return the buffers that the model changes, here or for other shapes, by placeholder."""
    signature = exported.graph_signature
    placeholders = {given.target: given.arg.name for given in signature.input_specs if given.target}
    found = {}
    for leaf, output in zip(leaves, signature.output_specs, strict=True):
        if output.kind not in STORES:
            continue
        if output.target not in dict(model.named_buffers()):
            raise ValueError(
                f"{type(model).__name__} changes {output.target!r} when it runs in eval mode, which is not one of its "
                "buffers; register it as a buffer, so that the engine can keep it between calls"
            )
        found[placeholders[output.target]] = State(output.target, leaf)
    nodes = {node.name: node for node in exported.graph.nodes if node.op == "placeholder"}
    for name in known:
        if name in placeholders:  # else nothing here reads it
            found.setdefault(placeholders[name], State(name, nodes[placeholders[name]]))
    return found


def _attribute(module: nn.Module, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found
