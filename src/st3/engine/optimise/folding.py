"""Fold batch norms and padding into neighbouring layers; weights are computed in float64 and rounded once."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..frontend import Read, TorchCall
from ..frontend.layers import Sides, make_symmetric
from ..program import Affine, Conv, Floats, InTorch, Layer, Norm, Program, Step

__all__ = ["fold"]


def fold(program: Program) -> Program:
    """Fold padding before a layer, batch norm after a layer, and batch norm before a layer, where that is exact."""
    program = _fold_padding(program).without_unread_steps()
    return _fold_norms_before_layers(_fold_norms_after_layers(program))


# ---------------------------------------------------------------- batch norm after a layer


def _fold_norms_after_layers(program: Program) -> Program:
    count = program.count_reads()
    place: dict[str, int] = {}  # value -> index of its step
    steps: list[Step] = []
    for step in program:
        at = place.get(step.sources[0]) if isinstance(step, Affine) else None
        if at is not None and isinstance(step, Affine) and count[step.sources[0]] == 1:
            folded = _fold_scale(steps[at], step, len(program.shapes[step.target]))
            if folded is not None:
                steps[at] = folded
                place[step.target] = at
                continue
        place[step.target] = len(steps)
        steps.append(step)
    return program.with_steps(steps)


def _fold_scale(step: Step, norm: Affine, rank: int) -> Step | None:
    """Return the step with its result scaled and shifted; None if it is not linear, or has other channels."""
    if not _same_axis(step, norm, rank):
        return None
    scale, shift = norm.scale.astype(np.float64), norm.shift.astype(np.float64)
    match step:
        case Affine(activation=None):
            return replace(
                norm,
                sources=step.sources,
                scale=_to_float32(step.scale * scale),
                shift=_to_float32(step.shift * scale + shift),
            )
        case Norm():
            old = (1.0 if step.scale is None else step.scale, 0.0 if step.shift is None else step.shift)
            new_scale, new_shift = _to_float32(old[0] * scale), _to_float32(old[1] * scale + shift)
            return replace(
                step, target=norm.target, scale=new_scale, shift=new_shift if new_shift.any() else None
            )
        case Layer(activation=None, sources=(_,)):
            weight = step.weight * scale.reshape(-1, *[1] * (step.weight.ndim - 1))
            bias = shift if step.bias is None else step.bias * scale + shift
            return replace(step, target=norm.target, weight=_to_float32(weight), bias=_to_float32(bias))
    return None


def _same_axis(step: Step, norm: Affine, rank: int) -> bool:
    return step.channel_axis is not None and (step.channel_axis - norm.channel_axis) % rank == 0


# ---------------------------------------------------------------- batch norm before a layer


def _fold_norms_before_layers(program: Program) -> Program:
    """Fold norms into the layer after them, unless it pads its input: the norm does not shift padded zeros."""
    count = program.count_reads()
    norms = {step.target: step for step in program if isinstance(step, Affine) and step.activation is None}
    steps: list[Step] = []
    for step in program:
        if isinstance(step, Layer) and not step.reads_padding and (norm := norms.get(step.sources[0])):
            is_same = _same_axis(step, norm, len(program.shapes[norm.target]))
            step = _fold_norm_before(step, norm) if is_same and count[norm.target] == 1 else step
        steps.append(step)
    return program.with_steps(steps).without_unread_steps()


def _fold_norm_before(step: Layer, norm: Affine) -> Step:
    groups = step.groups if isinstance(step, Conv) else 1
    outputs, inputs = step.weight.shape[:2]
    scale, shift = (
        np.repeat(each.astype(np.float64).reshape(groups, inputs), outputs // groups, axis=0)
        for each in (norm.scale, norm.shift)
    )
    taps = (1,) * (step.weight.ndim - 2)
    weight = step.weight * scale.reshape(*scale.shape, *taps)
    added = (step.weight.astype(np.float64).reshape(outputs, inputs, -1).sum(2) * shift).sum(1)
    bias = added if step.bias is None else step.bias + added
    return replace(
        step, sources=(norm.sources[0], *step.sources[1:]), weight=_to_float32(weight), bias=_to_float32(bias)
    )


def _to_float32(array: Any) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float32)


# ---------------------------------------------------------------- padding before a convolution


def _fold_padding(program: Program) -> Program:
    pads = {step.target: step for step in program if isinstance(step, InTorch) and _sides(step)}
    steps: list[Step] = []
    for step in program:
        if isinstance(step, Conv) and (pad := pads.get(step.sources[0])):
            sides = _sides(pad)
            assert sides is not None
            (top, bottom), (left, right) = sides
            tall, wide = step.padding
            all_sides = ((top + tall, bottom + tall), (left + wide, right + wide))
            weight, padding, dilation = make_symmetric(step.weight, all_sides, step.dilation)
            step = replace(step, sources=pad.sources, weight=weight, padding=padding, dilation=dilation)
        steps.append(step)
    return program.with_steps(steps)


def _sides(step: InTorch) -> Sides | None:
    """Return the padding of height and width, if the step is a padding with zeros and nothing else."""
    match step.function:
        case TorchCall(torch.ops.aten.pad.default, (Read(), [left, right, top, bottom], *rest), kwargs):
            is_zero = rest[:1] in ([], ["constant"]) and not any(rest[1:]) and not kwargs
        case TorchCall(
            torch.ops.aten.constant_pad_nd.default, (Read(), [left, right, top, bottom], *rest), kwargs
        ):
            is_zero = not any(rest) and not kwargs
        case _:
            return None
    return ((top, bottom), (left, right)) if is_zero and min(top, bottom, left, right) >= 0 else None
