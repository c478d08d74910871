"""The arguments that a model is exported with: which axes of them may vary, and the same arguments in other sizes."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .fit import shape_text

__all__ = ["Axes", "ExportError", "Inputs", "bind", "choose_axes", "other_sizes", "torch_shapes"]

Axes = Mapping[str, Mapping[int, Any]]  # argument -> axis -> its name, or a torch.export.Dim

STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class ExportError(RuntimeError):
    """The model cannot be exported, or the exported file gives other answers.

    No file has been written. The message says which argument, axis or operation is at fault. An example input of
    another size, `dynamic={}` (all shapes fixed) or another `opset` may help.
    """


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call of the model: all positional or all by keyword."""

    arguments: dict[str, Any]  # by the names that forward gives them
    are_keywords: bool
    variadic: tuple[str, ...] = ()  # *args and **kwargs of forward that collect some of them

    @property
    def args(self) -> tuple[Any, ...]:
        return () if self.are_keywords else tuple(self.arguments.values())

    @property
    def kwargs(self) -> dict[str, Any]:
        return self.arguments if self.are_keywords else {}

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.arguments.items() if isinstance(value, Tensor)}

    def __str__(self) -> str:
        shapes = {name: shape_text(tensor.shape) for name, tensor in self.tensors.items()}
        if not self.are_keywords:
            return ", ".join(shapes.values())
        return ", ".join(f"{name} {shape}" for name, shape in shapes.items())


def bind(model: nn.Module, example: Any) -> Inputs:
    """Return the arguments that `example` stands for: a tensor, a tuple of arguments or a dict of named arguments."""
    if not isinstance(example, Tensor | tuple | list | Mapping):
        raise TypeError(
            "example_input must be a tensor, a tuple of arguments or a dict of named arguments, "
            f"got {type(example).__name__}"
        )
    are_keywords = isinstance(example, Mapping)
    args = () if are_keywords else (example,) if isinstance(example, Tensor) else tuple(example)
    kwargs = dict(example) if are_keywords else {}
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise ExportError(f"{type(model).__name__} cannot be called with example_input: {error}") from None
    stars = {name: STARS.get(signature.parameters[name].kind, "") for name in bound}
    if are_keywords:
        # torch.export expects the order of forward
        arguments = {name: kwargs[name] for name in bound if name in kwargs} | kwargs
    else:
        names = [name for name in bound if not stars[name]]
        names += [f"argument {number}" for number in range(len(names), len(args))]
        arguments = dict(zip(names, args, strict=True))
    variadic = tuple(f"{stars[name]}{name}" for name in bound if stars[name])
    inputs = Inputs(arguments, are_keywords, variadic)
    if not inputs.tensors:
        raise ValueError("example_input must hold at least one tensor")
    return inputs


def choose_axes(inputs: Inputs, dynamic: Axes | None) -> dict[str, dict[int, Any]]:
    """Return the axes that may vary, each as a torch.export.Dim: those that `dynamic` names, by default the batch."""
    axes = _find_batch(inputs) if dynamic is None else dynamic
    _check_axes(inputs, axes)
    given = [(argument, axis, axes[argument][axis]) for argument in axes for axis in axes[argument]]
    dims = {name: torch.export.Dim(name) for _, _, name in given if isinstance(name, str)}
    dims |= {dim.__name__: dim for _, _, dim in given if not isinstance(dim, str)}
    chosen: dict[str, dict[int, Any]] = {}
    sizes: dict[str, int] = {}
    for argument, axis, name in given:
        dim = dims[name if isinstance(name, str) else name.__name__]
        size = inputs.tensors[argument].shape[axis]
        if sizes.setdefault(dim.__name__, size) != size:
            raise ValueError(
                f"dynamic gives the name {dim.__name__!r} to axes of size {sizes[dim.__name__]} and {size}: "
                "axes with one name must have one size"
            )
        chosen.setdefault(argument, {})[axis] = dim
    if chosen and inputs.variadic:
        raise ExportError(
            f"torch.export allows no dynamic axes if forward collects arguments in {' and '.join(inputs.variadic)}: "
            "give only arguments that forward names, or say dynamic={} to fix all shapes"
        )
    return chosen


def other_sizes(inputs: Inputs, axes: Mapping[str, Mapping[int, Any]]) -> list[Inputs]:
    """Return the arguments in the sizes to trace and test.

    First the example, with at least 2 along every dynamic axis, since torch.export takes 1 for a constant; then with
    another size of every dynamic axis; then with size 1 of those that are the first axis of a tensor: a batch of one.
    """
    if not axes:
        return [inputs]
    example = {
        dim: inputs.tensors[argument].shape[axis] for argument in axes for axis, dim in axes[argument].items()
    }
    usual = {dim: max(2, size) for dim, size in example.items()}
    other = {dim: _pick_other(dim, size) for dim, size in usual.items()}
    single = usual | {chosen[0]: 1 for chosen in axes.values() if 0 in chosen and chosen[0].min <= 1}
    trials = [usual, other] + [single] * (single != usual)
    return [_resize(inputs, axes, sizes) for sizes in trials]


def torch_shapes(
    inputs: Inputs, axes: Mapping[str, Mapping[int, Any]]
) -> dict[str, Mapping[int, Any] | None] | None:
    """Return the axes as torch.export expects them."""
    return {name: axes.get(name) for name in inputs.arguments} if axes else None


def _find_batch(inputs: Inputs) -> dict[str, dict[int, str]]:
    first = next(iter(inputs.tensors.values()))
    if not first.dim():
        raise ValueError(
            "example_input has no batch: the first tensor must have an axis that counts examples, "
            "or say dynamic={} to fix all shapes"
        )
    batch = first.shape[0]
    return {
        name: {0: "batch"}
        for name, tensor in inputs.tensors.items()
        if tensor.dim() and tensor.shape[0] == batch
    }


def _check_axes(inputs: Inputs, axes: Axes) -> None:
    if not isinstance(axes, Mapping) or not all(isinstance(chosen, Mapping) for chosen in axes.values()):
        raise TypeError(f"dynamic must be like {{'input_ids': {{0: 'batch', 1: 'sequence'}}}}, got {axes!r}")
    for argument, chosen in axes.items():
        if argument not in inputs.tensors:
            raise ValueError(
                f"dynamic names {argument!r}, but the tensors in example_input are {', '.join(inputs.tensors)}"
            )
        tensor = inputs.tensors[argument]
        for axis, name in chosen.items():
            if not isinstance(axis, int) or not 0 <= axis < tensor.dim():
                raise ValueError(
                    f"dynamic: {argument} has no axis {axis!r}, its shape is {shape_text(tensor.shape)}"
                )
            if not (name.isidentifier() if isinstance(name, str) else hasattr(name, "max")):
                raise ValueError(
                    f"dynamic: axis {axis} of {argument} needs a name such as 'sequence' or a torch.export.Dim, "
                    f"got {name!r}"
                )
            if not tensor.shape[axis]:
                raise ValueError(
                    f"example_input is empty: axis {axis} of {argument} must have a size of at least 1"
                )


def _pick_other(dim: Any, size: int) -> int:
    """Return another size within the limits; shorter where possible, since longer may exceed what the model takes."""
    sizes = (size // 2, size + 1, size - 1)
    return next((other for other in sizes if max(2, dim.min) <= other <= dim.max), size)


def _resize(inputs: Inputs, axes: Mapping[str, Mapping[int, Any]], sizes: Mapping[Any, int]) -> Inputs:
    """Cut the tensors, or repeat them from the start, along their dynamic axes."""
    resized = dict(inputs.arguments)
    for argument, chosen in axes.items():
        for axis, dim in chosen.items():
            tensor = resized[argument]
            places = torch.arange(sizes[dim], device=tensor.device) % tensor.shape[axis]
            resized[argument] = tensor.index_select(axis, places)
    return replace(inputs, arguments=resized)
