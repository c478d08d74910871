"""Convolutions, linear layers, norms."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..program import Affine, Conv, Floats, GroupNorm, Linear, Norm, Pair, Reshape, Shape, Step
from .aten_call import AtenCall, NotCovered, aten, covers
from .torch_call import Read, TorchCall

Sides = tuple[tuple[int, int], tuple[int, int]]  # (top, bottom), (left, right)


@covers(aten.conv2d.default, aten.conv2d.padding, aten.conv1d.default, aten.conv1d.padding)
def _conv(op: AtenCall) -> Step:
    shape = op.need_rank("input", 3, 4)
    if len(shape) == 3:
        return _conv1d(op, shape)
    return _make_conv(
        op, op.value("input"), op.array("weight"), op["padding"], op.pair("stride"), op.pair("dilation")
    )


def _conv1d(op: AtenCall, shape: Shape) -> Step:
    """Translate to a convolution of images of height 1."""
    image = op.before(Reshape, op.value("input"), (*shape[:2], 1, shape[2]), "image")
    (stride,), (dilation,) = op["stride"], op["dilation"]
    padding = op["padding"] if isinstance(op["padding"], str) else (0, op["padding"][0])
    weight = op.array("weight")[:, :, None]
    conv = _make_conv(op, image, weight, padding, (1, stride), (1, dilation))
    op.add_step(replace(conv, target=f"{op.target}:conv"), (*op.shape[:2], 1, op.shape[2]))
    return Reshape(name="", sources=(f"{op.target}:conv",), target=op.target)


def _make_conv(op: AtenCall, source: str, weight: Floats, padding: Any, stride: Pair, dilation: Pair) -> Conv:
    sides = _sides(padding, weight, dilation)
    weight, both_sides, dilation = make_symmetric(weight, sides, dilation)
    return Conv(
        name="",
        sources=(source,),
        target=op.target,
        weight=weight,
        bias=op.optional_array("bias"),
        stride=stride,
        padding=both_sides,
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


def same_padding(kernel: tuple[int, int], dilation: tuple[int, int]) -> Sides:
    """Return the padding of `padding="same"`; if the total is odd, the larger half comes after.

    >>> same_padding((3, 2), (1, 1))
    ((1, 1), (0, 1))
    """
    totals = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    (tall, wide) = ((total // 2, total - total // 2) for total in totals)
    return tall, wide


def make_symmetric(
    weight: Floats, sides: Sides, dilation: tuple[int, int]
) -> tuple[Floats, tuple[int, int], tuple[int, int]]:
    """Return weight, padding and dilation of an equivalent convolution with equal padding on opposite sides.

    With padding p = max(before, after) on both sides, a kernel shifted by p - before reads the same pixels. The taps
    added by the shift are zeros, which cost a sparse kernel nothing.

    >>> weight, padding, dilation = make_symmetric(np.ones((1, 1, 1, 2), np.float32), ((0, 0), (0, 1)), (1, 1))
    >>> weight.tolist(), padding
    ([[[[0.0, 1.0, 1.0]]]], (0, 1))
    """
    dilations = list(dilation)
    for axis, (before, after) in enumerate(sides, start=2):
        shift = abs(after - before)
        if shift % dilations[axis - 2]:
            weight = _undilate(weight, axis, dilations[axis - 2])
            dilations[axis - 2] = 1
        more = [(0, 0)] * 4
        taps = shift // dilations[axis - 2]
        more[axis] = (taps, 0) if after > before else (0, taps)
        weight = np.pad(weight, more)
    padding = (max(sides[0]), max(sides[1]))
    return np.ascontiguousarray(weight), padding, (dilations[0], dilations[1])


def _undilate(weight: Floats, axis: int, dilation: int) -> Floats:
    """Return the kernel with zeros in the gaps of the dilation."""
    shape = list(weight.shape)
    shape[axis] = dilation * (shape[axis] - 1) + 1
    spread = np.zeros(shape, weight.dtype)
    spread[(slice(None),) * axis + (slice(None, None, dilation),)] = weight
    return spread


@covers(aten.convolution.default)
def _convolution(op: AtenCall) -> Step | Read | TorchCall:
    if op["transposed"]:
        raise NotCovered("it is transposed")
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
    weight = op.array("mat2", is_transposed=True)
    bias = np.array(np.broadcast_to(bias, (weight.shape[0],)))
    return _make_linear(op, op.value("mat1"), weight, bias)


@covers(aten.mm.default, aten.matmul.default)
def _matmul(op: AtenCall) -> Step:
    right = "mat2" if "mat2" in op.given else "other"
    if not isinstance(op[right], Tensor) or op[right].ndim != 2:
        raise NotCovered("its right operand is not a constant matrix")
    _need_batch(op, "self")
    return _make_linear(op, op.value("self"), op.array(right, is_transposed=True), None)


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
    return affine(op, op.value("input"), scale, shift, axis=1)


def affine(op: AtenCall, source: str, scale: Any, shift: Any, axis: int) -> Step:
    channels = op.shape[axis]
    both = (np.array(np.broadcast_to(a, (channels,)), np.float32, order="C") for a in (scale, shift))
    new_scale, new_shift = both
    return Affine(name="", sources=(source,), target=op.target, scale=new_scale, shift=new_shift, axis=axis)


@covers(aten.layer_norm.default, aten.native_layer_norm.default)
def _layer_norm(op: AtenCall) -> Step:
    return _last_axis_norm(op, op.optional_array("bias"), op["eps"], is_centred=True)


@covers(aten.rms_norm.default)
def _rms_norm(op: AtenCall) -> Step:
    eps = torch.finfo(torch.float32).eps if op["eps"] is None else op["eps"]
    return _last_axis_norm(op, None, eps, is_centred=False)


def _last_axis_norm(op: AtenCall, shift: Floats | None, eps: float, *, is_centred: bool) -> Step:
    if len(op["normalized_shape"]) != 1 or op.item not in (None, 0):
        raise NotCovered("it normalises several axes")
    if len(op.shape) < 2:
        raise NotCovered("its input has no batch dimension")
    return Norm(
        name="",
        sources=(op.value("input"),),
        target=op.target,
        scale=op.optional_array("weight"),
        shift=shift,
        eps=eps,
        is_centred=is_centred,
    )


@covers(aten.group_norm.default)
def _group_norm(op: AtenCall) -> Step:
    op.need_rank("input", 4)
    return GroupNorm(
        name="",
        sources=(op.value("input"),),
        target=op.target,
        scale=op.optional_array("weight"),
        shift=op.optional_array("bias"),
        eps=op["eps"],
        groups=op["num_groups"],
    )
