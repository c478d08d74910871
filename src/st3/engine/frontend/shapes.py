"""Operators that move or pool pixels: reshapes, copies, views, concatenation, pooling."""

import itertools
import operator
from typing import Any

import numpy as np
import torch

from ..program import (
    AdaptiveAverage,
    AveragePool,
    Concat,
    Floats,
    GlobalAverage,
    MaxPool,
    Resample,
    Reshape,
    Select,
    Shape,
    Step,
)
from .aten_call import COPIES, AtenCall, NotCovered, aten, covers
from .torch_call import Read, TorchCall

MOST_TAPS = 16  # pixels that a resampled one is mixed from

# The same elements in the same order.
RESHAPES = {
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
}
# Some elements, or all in another order: torch returns a view without copying.
VIEWS = {
    aten.chunk.default,
    aten.expand.default,
    aten.permute.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.t.default,
    aten.transpose.int,
    aten.unbind.int,
}


@covers(*RESHAPES)
def _reshape(op: AtenCall) -> Step | Read:
    if op.shape == op.shapes[op.value("self")]:
        return Read(op.value("self"))
    return Reshape(name="", sources=(op.value("self"),), target=op.target)


@covers(*COPIES)
def _identity(op: AtenCall) -> Read:
    return Read(op.value("self"))


@covers(aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default)
def _dropout(op: AtenCall) -> Read:
    if op["train"] and op["p"] > 0:
        raise NotCovered("it is active in eval mode")
    return Read(op.value("input"))


def select_channels(call: TorchCall, shapes: dict[str, Shape], steps: list[Step]) -> Step | None:
    """Return the step if a view is a slice of channels, or if it shuffles channels between groups."""
    match call:
        case TorchCall(aten.slice.Tensor, (Read(source), dim, begin, end, *step)) if step in ([], [1]):
            channels = range(*slice(begin, end).indices(shapes[source][dim]))
        case TorchCall(operator.getitem, (TorchCall(function, (Read(source), sizes, *dims)), int(number))):
            dim = dims[0] if dims else 0
            found = _part(function, shapes[source][dim], sizes, number)
            if found is None:
                return None
            channels = found
        case TorchCall(torch.reshape, (TorchCall(aten.transpose.int, (Read(parts), 1, 2)), shape)):
            before = next(step for step in steps if step.target == parts)
            source, inner = before.sources[0], shapes[parts]
            if not isinstance(before, Reshape) or len(inner) != 5 or shapes[source] != shape:
                return None
            index = np.arange(shape[1]).reshape(inner[1:3]).T.reshape(-1)
            return Select(name="", sources=(source,), target=call.name, index=np.ascontiguousarray(index))
        case _:
            return None
    rank = len(shapes[source])
    if dim % rank != (1 if rank == 4 else rank - 1) or rank < 2:
        return None
    axis = 1 if rank == 4 else -1
    return Select(name="", sources=(source,), target=call.name, index=np.array(channels), axis=axis)


def _part(function: Any, size: int, sizes: Any, number: int) -> range | None:
    """Return the range of one part of a split."""
    if function is aten.chunk.default:
        sizes = -(-size // sizes)
    elif function not in (aten.split.Tensor, aten.split_with_sizes.default):
        return None
    edges = [*range(0, size, sizes), size] if isinstance(sizes, int) else [0, *itertools.accumulate(sizes)]
    return range(edges[number], edges[number + 1])


@covers(aten.cat.default)
def _cat(op: AtenCall) -> Step:
    parts = op["tensors"]
    if not all(isinstance(part, Read) for part in parts):
        raise NotCovered("one of its inputs is a constant")
    if op["dim"] % len(op.shape) != 1 or len(op.shape) not in (2, 4):
        raise NotCovered("it does not concatenate channels")
    if any(len(op.shapes[part.name]) != len(op.shape) for part in parts):
        raise NotCovered("one of its inputs is empty")
    return Concat(name="", sources=tuple(part.name for part in parts), target=op.target)


@covers(aten.max_pool2d.default, aten.max_pool2d_with_indices.default)
def _max_pool(op: AtenCall) -> Step:
    op.need_rank("self", 4)
    if op.item not in (None, 0):
        raise NotCovered("it returns indices")
    return MaxPool(dilation=op.pair("dilation"), **_windows(op))


@covers(aten.avg_pool2d.default)
def _average_pool(op: AtenCall) -> Step:
    op.need_rank("self", 4)
    if op["divisor_override"] is not None:
        raise NotCovered("it overrides the divisor")
    return AveragePool(count_padding=op["count_include_pad"], **_windows(op))


def _windows(op: AtenCall) -> dict[str, Any]:
    kernel = op.pair("kernel_size")
    return {
        "name": "",
        "sources": (op.value("self"),),
        "target": op.target,
        "kernel": kernel,
        "stride": op.pair("stride") if op["stride"] else kernel,
        "padding": op.pair("padding"),
        "ceil_mode": op["ceil_mode"],
    }


@covers(aten.adaptive_avg_pool2d.default)
def _adaptive_average(op: AtenCall) -> Step | Read | TorchCall:
    shape = op.need_rank("self", 4)
    if op.shape == shape:
        return Read(op.value("self"))
    if shape[2] % op.shape[2] or shape[3] % op.shape[3]:
        return _resample(op)
    kind = GlobalAverage if op.shape[2:] == (1, 1) else AdaptiveAverage
    return kind(name="", sources=(op.value("self"),), target=op.target)


@covers(aten.adaptive_max_pool2d.default)
def _adaptive_max(op: AtenCall) -> Step:
    shape = op.need_rank("self", 4)
    if op.item not in (None, 0) or shape[2] % op.shape[2] or shape[3] % op.shape[3]:
        raise NotCovered("its windows have different sizes")
    window = (shape[2] // op.shape[2], shape[3] // op.shape[3])
    return MaxPool(name="", sources=(op.value("self"),), target=op.target, kernel=window, stride=window)


@covers(aten.mean.dim)
def _mean(op: AtenCall) -> Step:
    op.need_rank("self", 4)
    if sorted(axis % 4 for axis in op["dim"] or ()) != [2, 3] or op["dtype"] is not None:
        raise NotCovered("it is not over height and width")
    return GlobalAverage(name="", sources=(op.value("self"),), target=op.target)


@covers(aten.max_pool1d.default, aten.avg_pool1d.default, aten.adaptive_avg_pool1d.default)
def _pool1d(op: AtenCall) -> Step:
    """Translate to a pooling of images of height 1."""
    shape = op.need_rank("self", 3)
    image = op.before(Reshape, op.value("self"), (*shape[:2], 1, shape[2]), "image")
    pooled = (*op.shape[:2], 1, op.shape[2])
    if "output_size" in op.given:
        kind = GlobalAverage if op.shape[2] == 1 else AdaptiveAverage
        made = op.before(kind, image, pooled, "pooled")
        return Reshape(name="", sources=(made,), target=op.target)
    windows: dict[str, Any] = {
        "kernel": (1, op.pair("kernel_size")[1]),
        "stride": (1, (op.pair("stride") if op["stride"] else op.pair("kernel_size"))[1]),
        "padding": (0, op.pair("padding")[1]),
        "ceil_mode": op["ceil_mode"],
    }
    if "dilation" in op.given:
        made = op.before(MaxPool, image, pooled, "pooled", dilation=(1, op.pair("dilation")[1]), **windows)
    else:
        made = op.before(
            AveragePool, image, pooled, "pooled", count_padding=op["count_include_pad"], **windows
        )
    return Reshape(name="", sources=(made,), target=op.target)


@covers(
    aten.upsample_nearest2d.vec,
    aten.upsample_nearest2d.default,
    aten._upsample_nearest_exact2d.vec,
    aten._upsample_nearest_exact2d.default,
    aten.upsample_bilinear2d.vec,
    aten.upsample_bilinear2d.default,
    aten.upsample_bicubic2d.vec,
    aten.upsample_bicubic2d.default,
)
def _resample(op: AtenCall) -> Step:
    """Translate an operator that is linear, and treats rows, columns and channels separately."""
    name = next(iter(op.given))
    op.need_rank(name, 4)
    rows, columns = _matrix(op, 0), _matrix(op, 1)
    if np.count_nonzero(rows, axis=1).max() * np.count_nonzero(columns, axis=1).max() > MOST_TAPS:
        raise NotCovered(f"it mixes more than {MOST_TAPS} pixels")
    return Resample(name="", sources=(op.value(name),), target=op.target, rows=rows, columns=columns)


def _matrix(op: AtenCall, axis: int) -> Floats:
    """Return the matrix of one axis: what torch makes of unit vectors along it."""
    name = next(iter(op.given))
    size = op.shapes[op.value(name)][2 + axis]
    units = (
        torch.eye(size).unsqueeze(0).unsqueeze(3 - axis)
    )  # one in every channel; the other axis has one pixel
    given = {**op.given, name: units}
    for key in ("output_size", "scale_factors"):
        if given.get(key) is not None:
            given[key] = [each if at == axis else 1 for at, each in enumerate(given[key])]
    if "scales_h" in given:
        given["scales_w" if axis == 0 else "scales_h"] = None
    made = op.node.target(*given.values()).reshape(size, -1)  # type: ignore[operator]
    return np.ascontiguousarray(made.T.numpy())
