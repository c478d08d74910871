"""Fold batch norms and padding into neighbouring layers; weights are computed in float64 and rounded once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from .padding import Sides, make_symmetric
from .program import Affine, Conv, Floats, InTorch, Linear, Program, Step
from .torch_call import Read, TorchCall

__all__ = ["count_reads", "drop_unread_steps", "fold", "replace_steps"]


def count_reads(program: Program) -> Counter[str]:
    """Return how often each value is read, by steps and as an output."""
    return Counter([*(source for step in program for source in step.sources), *program.outputs])


def replace_steps(program: Program, steps: Sequence[Step]) -> Program:
    """Return the program with these steps, and the shapes of their values only."""
    made = {*program.inputs, *(step.target for step in steps)}
    shapes = {name: shape for name, shape in program.shapes.items() if name in made}
    return replace(program, steps=tuple(steps), shapes=shapes)


def drop_unread_steps(program: Program) -> Program:
    """Return the program without steps whose value is never read."""
    needed, steps = set(program.outputs), []
    for step in reversed(program.steps):
        if step.target in needed:
            needed.update(step.sources)
            steps.append(step)
    return replace_steps(program, steps[::-1])


def fold(program: Program) -> Program:
    """Fold padding before a layer, batch norm after a layer, and batch norm before a layer, where that is exact."""
    program = drop_unread_steps(_fold_padding(program))
    return _fold_norms_before_layers(_fold_norms_after_layers(program))


# ---------------------------------------------------------------- batch norm after a layer


def _fold_norms_after_layers(program: Program) -> Program:
    count = count_reads(program)
    place: dict[str, int] = {}  # value -> index of its step
    steps: list[Step] = []
    for step in program:
        at = place.get(step.sources[0]) if isinstance(step, Affine) else None
        if at is None or count[step.sources[0]] > 1 or not _can_fold_scale(steps[at], program):
            place[step.target] = len(steps)
            steps.append(step)
            continue
        assert isinstance(step, Affine)
        steps[at] = _fold_scale(steps[at], step)
        place[step.target] = at
    return replace_steps(program, steps)


def _can_fold_scale(step: Step, program: Program) -> bool:
    """Return whether the step's weights can absorb a scale and a shift of axis 1."""
    if isinstance(step, Linear) and len(program.shapes[step.target]) != 2:
        return False  # its outputs are the last axis, not axis 1
    is_layer = isinstance(step, Conv | Linear) and len(step.sources) == 1
    return (is_layer or isinstance(step, Affine)) and step.activation is None  # type: ignore[attr-defined]


def _fold_scale(step: Step, norm: Affine) -> Step:
    scale, shift = norm.scale.astype(np.float64), norm.shift.astype(np.float64)
    if isinstance(step, Affine):
        return replace(
            step,
            target=norm.target,
            scale=_to_float32(step.scale * scale),
            shift=_to_float32(step.shift * scale + shift),
        )
    assert isinstance(step, Conv | Linear)
    weight = step.weight * scale.reshape(-1, *[1] * (step.weight.ndim - 1))
    bias = shift if step.bias is None else step.bias * scale + shift
    return replace(step, target=norm.target, weight=_to_float32(weight), bias=_to_float32(bias))


# ---------------------------------------------------------------- batch norm before a layer


def _fold_norms_before_layers(program: Program) -> Program:
    """Fold norms into the layer after them, unless it pads its input: the norm does not shift padded zeros."""
    count = count_reads(program)
    norms = {step.target: step for step in program if isinstance(step, Affine) and step.activation is None}
    steps: list[Step] = []
    for step in program:
        norm = norms.get(step.sources[0]) if isinstance(step, Conv | Linear) else None
        if norm is not None and count[norm.target] == 1 and _can_fold_shift(step, program):
            assert isinstance(step, Conv | Linear)
            step = _fold_norm_before(step, norm)
        steps.append(step)
    return drop_unread_steps(replace_steps(program, steps))


def _can_fold_shift(step: Step, program: Program) -> bool:
    if isinstance(step, Conv):
        return step.padding == (0, 0)
    return len(program.shapes[step.sources[0]]) == 2


def _fold_norm_before(step: Conv | Linear, norm: Affine) -> Step:
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
    return replace_steps(program, steps)


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
