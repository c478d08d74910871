"""Check the models that are compiled and the inputs that compiled models are called with."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.utils._pytree import tree_leaves

__all__ = [
    "calibration_arguments",
    "check_input",
    "check_model",
    "check_threads",
    "example_arguments",
    "shape_text",
]

MOST_THREADS = 1024  # more is surely a mistake: each thread has a scratch buffer
STATISTICS = ("running_mean", "running_var")


def check_model(model: nn.Module) -> None:
    """Raise if the model is in training mode, not on the CPU, not float32, or has NaN or infinite weights."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    training = [name or type(model).__name__ for name, module in model.named_modules() if module.training]
    if training:
        raise ValueError(
            f"the model is in training mode ({training[0]}): call model.eval() before compiling it"
        )
    for name, parameter in model.named_parameters():
        _check_parameter(name, parameter)
    for name, buffer in model.named_buffers():
        _check_device(f"buffer {name!r}", buffer)
        if name.split(".")[-1] in STATISTICS:
            _check_finite(f"buffer {name!r}", buffer)


def check_threads(threads: int | None) -> None:
    """Raise if it is not a number of threads, or None for the default."""
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MOST_THREADS):
        raise ValueError(f"threads must be an integer from 1 to {MOST_THREADS}, got {threads!r}")


def _check_parameter(name: str, parameter: Tensor) -> None:
    what = f"parameter {name!r}"
    if isinstance(parameter, UninitializedParameter):
        raise ValueError(f"{what} has no shape yet: run the model once before compiling it")
    if hasattr(parameter, "placements"):
        raise ValueError(f"{what} is sharded over processes: gather the model before compiling it")
    _check_device(what, parameter)
    if parameter.dtype is not torch.float32:
        raise ValueError(f"{what} is {parameter.dtype}; the engine computes in float32: use model.float()")
    _check_finite(what, parameter)


def _check_device(what: str, tensor: Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"{what} is on {tensor.device}; the engine runs on the CPU: use model.cpu()")


def _check_finite(what: str, tensor: Tensor) -> None:
    finite = torch.isfinite(tensor.detach())
    if not finite.all():
        bad = int((~finite).sum())
        raise ValueError(f"{what} has NaN or infinite values ({bad} of {tensor.numel()})")


def example_arguments(example: Any, what: str = "example_input") -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments of an example input."""
    found: tuple[tuple[Any, ...], dict[str, Any]]
    match example:
        case Tensor():
            found = (example,), {}
        case tuple() | list():
            found = tuple(example), {}
        case dict():
            found = (), dict(example)
        case _:
            raise TypeError(
                f"{what} must be a tensor, a tuple of arguments or a dict of named arguments, "
                f"got {type(example).__name__}"
            )
    if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(found)):
        raise TypeError(f"{what} holds no tensor; it must be an input of the model, not its shape")
    return found


def calibration_arguments(calibration: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return the arguments of each of some calibration inputs."""
    if isinstance(calibration, Tensor | dict | str) or not isinstance(calibration, Iterable):
        raise TypeError(
            "calibration must be a list of inputs, each like example_input, got "
            f"{type(calibration).__name__}; for a single one: calibration=[x]"
        )
    found = [
        example_arguments(each, f"calibration input {number}") for number, each in enumerate(calibration)
    ]
    if not found:
        raise ValueError("calibration holds no input: int8 needs the ranges that occur for typical inputs")
    return found


def check_input(leaves: Sequence[Any], expected: Sequence[Any] | None = None) -> None:
    """Raise if the engine cannot take a tensor, or if it differs from the expected one in more than its sizes."""
    for number, leaf in enumerate(leaves):
        what = "the input" if len(leaves) == 1 else f"input {number}"
        if expected is not None and isinstance(leaf, Tensor) != isinstance(expected[number], Tensor):
            raise TypeError(
                f"{what} is {_describe(leaf)}; the model was compiled for {_describe(expected[number])}"
            )
        if not isinstance(leaf, Tensor):
            continue
        if leaf.device.type != "cpu":
            raise ValueError(f"{what} is on {leaf.device}; the engine runs on the CPU: use x.cpu()")
        if leaf.layout is not torch.strided:
            raise ValueError(f"{what} is {leaf.layout}; the engine takes dense tensors: use x.to_dense()")
        like = expected[number] if expected is not None else None
        if isinstance(like, Tensor):
            _check_same_kind(what, leaf, like)
        elif (leaf.is_floating_point() or leaf.is_complex()) and leaf.dtype is not torch.float32:
            raise ValueError(f"{what} is {leaf.dtype}; the engine computes in float32: use x.float()")
        if leaf.numel() == 0:
            raise ValueError(f"{what} of shape {shape_text(leaf)} is empty")


def _describe(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return f"a tensor of shape {shape_text(leaf)}"
    is_short = leaf is None or isinstance(leaf, bool | int | float | str)
    return repr(leaf) if is_short else f"of type {type(leaf).__name__}"


def _check_same_kind(what: str, leaf: Tensor, like: Tensor) -> None:
    if leaf.dtype is not like.dtype:
        raise ValueError(f"{what} is {leaf.dtype}; the model was compiled for {like.dtype}")
    if leaf.dim() != like.dim():
        raise ValueError(
            f"{what} has {leaf.dim()} dimensions, {shape_text(leaf)}; "
            f"the model was compiled for {like.dim()}, {shape_text(like)}"
        )


def shape_text(tensor: Tensor) -> str:
    """Return a tensor's shape as text.

    >>> shape_text(torch.zeros(1, 3, 8, 8))
    '1x3x8x8'
    """
    return "x".join(map(str, tensor.shape)) or "()"
