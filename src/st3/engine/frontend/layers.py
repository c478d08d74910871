"""Convolutions, linear layers, batch norms."""

from typing import Any

import numpy as np
from torch import Tensor

from ..program import Affine, Conv, Floats, Linear, Step
from .aten_call import AtenCall, NotCovered, aten, covers
from .padding import Sides, make_symmetric, same_padding


@covers(aten.conv2d.default, aten.conv2d.padding)
def _conv2d(op: AtenCall) -> Step:
    return _conv(op)


def _conv(op: AtenCall) -> Step:
    op.need_rank("input", 4)
    weight, dilation = op.array("weight"), op.pair("dilation")
    sides = _sides(op["padding"], weight, dilation)
    weight, padding, dilation = make_symmetric(weight, sides, dilation)
    return Conv(
        name="",
        sources=(op.value("input"),),
        target=op.target,
        weight=weight,
        bias=op.optional_array("bias"),
        stride=op.pair("stride"),
        padding=padding,
        dilation=dilation,
        groups=op["groups"],
    )


def _sides(padding: Any, weight: Floats, dilation: tuple[int, int]) -> Sides:
    if padding == "same":
        return same_padding((weight.shape[2], weight.shape[3]), dilation)
    if padding == "valid":
        padding = (0, 0)
    height, width = (padding, padding) if isinstance(padding, int) else (padding[0], padding[-1])
    return (height, height), (width, width)


@covers(aten.convolution.default)
def _convolution(op: AtenCall) -> Step:
    if op["transposed"] or len(op.shape) != 4:
        raise NotCovered("it is transposed or not two-dimensional")
    return _conv(op)


@covers(aten.linear.default)
def _linear(op: AtenCall) -> Step:
    _need_batch(op, "input")
    return _make_linear(op, op.value("input"), op.array("weight"), op.optional_array("bias"))


@covers(aten.addmm.default)
def _addmm(op: AtenCall) -> Step:
    if op["beta"] != 1 or op["alpha"] != 1:
        raise NotCovered("its product is scaled")
    bias = op.array("self")
    if bias.ndim != 1:
        raise NotCovered("it adds a matrix")
    weight = op.array("mat2")
    bias = np.array(np.broadcast_to(bias, (weight.shape[1],)))
    return _make_linear(op, op.value("mat1"), np.ascontiguousarray(weight.T), bias)


@covers(aten.mm.default, aten.matmul.default)
def _matmul(op: AtenCall) -> Step:
    right = "mat2" if "mat2" in op.given else "other"
    if not isinstance(op[right], Tensor) or op[right].ndim != 2:
        raise NotCovered("its right operand is not a constant matrix")
    _need_batch(op, "self")
    return _make_linear(op, op.value("self"), np.ascontiguousarray(op.array(right).T), None)


def _need_batch(op: AtenCall, name: str) -> None:
    if len(op.shapes[op.value(name)]) < 2:
        raise NotCovered("its input has no batch dimension")


def _make_linear(op: AtenCall, source: str, weight: Floats, bias: Floats | None) -> Step:
    return Linear(name="", sources=(source,), target=op.target, weight=weight, bias=bias)


@covers(aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default)
def _batch_norm(op: AtenCall) -> Step:
    if op.given.get("training") or op["running_mean"] is None or op.item not in (None, 0):
        raise NotCovered("it uses batch statistics")
    if len(op.shapes[op.value("input")]) < 2:
        raise NotCovered("it has no channels")
    mean, variance = op.array("running_mean").astype(np.float64), op.array("running_var").astype(np.float64)
    weight, bias = op.optional_array("weight"), op.optional_array("bias")
    scale = (1.0 if weight is None else weight.astype(np.float64)) / np.sqrt(variance + op["eps"])
    shift = (0.0 if bias is None else bias.astype(np.float64)) - mean * scale
    return affine(op, op.value("input"), scale, shift)


def affine(op: AtenCall, source: str, scale: Any, shift: Any) -> Step:
    channels = op.shape[1]
    both = (np.array(np.broadcast_to(a, (channels,)), np.float32, order="C") for a in (scale, shift))
    new_scale, new_shift = both
    return Affine(name="", sources=(source,), target=op.target, scale=new_scale, shift=new_shift)
