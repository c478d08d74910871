"""A model as a graph of aten operations: `torch.export`, and if that fails, once more over a symbolic trace.

The graph is functional (nothing is changed in place) and its shapes are those of the example. Nothing is baked in that
depends on the numbers of the example: a model that decides by them cannot be captured, and that is said.
"""

import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils._pytree import TreeSpec

__all__ = ["Captured", "capture"]

# What export writes for a model that stores something: its own buffers would have to change with every call.
STORES = (OutputKind.BUFFER_MUTATION, getattr(OutputKind, "PARAMETER_MUTATION", OutputKind.BUFFER_MUTATION))


@dataclass(frozen=True)
class Captured:
    """The graph, what its placeholders stand for, and how the answers are put together."""

    graph: fx.Graph
    attributes: dict[str, Any]  # what get_attr nodes name
    constants: dict[str, Tensor]  # placeholder -> parameter, buffer or other tensor of the model
    inputs: tuple[str, ...]  # placeholders that the caller fills, in the order of the leaves of his arguments
    outputs: tuple[Any, ...]  # fx nodes, or the plain Python values themselves
    out_spec: TreeSpec


def capture(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Captured:
    """Trace the model, which must be in eval mode, for inputs of these shapes."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter(
            "ignore"
        )  # of torch about itself; the model's own were heard in its own forward passes
        exported = _exported(model, args, kwargs)
        if not _is_functional(exported):
            exported = exported.run_decompositions({})  # takes as long as the export itself
    signature = exported.graph_signature
    for output in signature.output_specs:
        if output.kind in STORES:
            raise ValueError(
                f"{type(model).__name__} changes its buffer {output.target!r} when it runs in eval mode; "
                "the engine compiles models whose answer depends on their input alone"
            )
    constants, inputs = _placeholders(exported)
    leaves = next(node for node in exported.graph.nodes if node.op == "output").args[0]
    outputs = tuple(
        leaf
        for leaf, output in zip(leaves, signature.output_specs, strict=True)
        if output.kind is OutputKind.USER_OUTPUT  # others: an input changed in place, which the caller keeps
    )
    attributes = {
        node.target: _attribute(exported.graph_module, node.target)
        for node in exported.graph.nodes
        if node.op == "get_attr"
    }
    out_spec = exported.call_spec.out_spec
    assert out_spec is not None
    return Captured(exported.graph, attributes, constants, inputs, outputs, out_spec)


def _exported(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    def export(of: nn.Module) -> ExportedProgram:
        return torch.export.export(of, args, kwargs, strict=False)

    ways: dict[str, Callable[[], ExportedProgram]] = {
        "torch.export": lambda: export(model),
        "torch.fx": lambda: export(fx.symbolic_trace(model)),
    }
    said = []
    for name, way in ways.items():
        try:
            return way()
        except Exception as error:  # a tracer fails with whatever the model's code makes of its stand-ins
            said.append((f"{name}: {type(error).__name__}: {_first_line(error)}", error))
    raise ValueError(
        f"{type(model).__name__} cannot be captured as a graph; a forward pass that decides by the numbers it "
        "computes, or works on them outside torch, has none: " + "; ".join(text for text, _ in said)
    ) from said[0][1]


def _is_functional(exported: ExportedProgram) -> bool:
    """Return whether the graph consists of operators that change nothing: no writes in place, no graphs inside."""
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
    """Return the model's tensors by placeholder, and the placeholders that are left for the caller."""
    constants: dict[str, Tensor] = {}
    inputs = []
    for given in exported.graph_signature.input_specs:
        if isinstance(given.arg, ConstantArgument):
            continue  # a plain value, written into the graph
        name = given.arg.name
        if given.kind is InputKind.USER_INPUT:
            inputs.append(name)
            continue
        assert given.target is not None
        home = exported.constants if given.target in exported.constants else exported.state_dict
        constants[name] = home[given.target]
    return constants, tuple(inputs)


def _attribute(module: nn.Module, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found
