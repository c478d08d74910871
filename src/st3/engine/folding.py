"""Batch norms and paddings taken into the layer beside them; the products are computed in float64 and rounded once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from .padding import Sides, symmetric
from .program import Affine, Conv, Floats, InTorch, Linear, Program, Step
from .torch_call import Read, TorchCall

__all__ = ["fold", "reads", "with_steps", "without_unread"]


def reads(program: Program) -> Counter[str]:
    """Return how often each value is read, by steps and as an output."""
    return Counter([*(source for step in program for source in step.sources), *program.outputs])


def with_steps(program: Program, steps: Sequence[Step]) -> Program:
    """Return the program with other steps, without what they no longer make."""
    made = {*program.inputs, *(step.target for step in steps)}
    shapes = {name: shape for name, shape in program.shapes.items() if name in made}
    return replace(program, steps=tuple(steps), shapes=shapes)


def without_unread(program: Program) -> Program:
    """Return the program without steps whose value nobody reads."""
    needed, steps = set(program.outputs), []
    for step in reversed(program.steps):
        if step.target in needed:
            needed.update(step.sources)
            steps.append(step)
    return with_steps(program, steps[::-1])


def fold(program: Program) -> Program:
    """Fold all that can be folded exactly: padding before, batch norm after, batch norm before a layer."""
    program = without_unread(_fold_padding(program))
    return _fold_before(_fold_after(program))


# ---------------------------------------------------------------- batch norm after a layer


def _fold_after(program: Program) -> Program:
    count = reads(program)
    place: dict[str, int] = {}  # value -> where its step stands
    steps: list[Step] = []
    for step in program:
        at = place.get(step.sources[0]) if isinstance(step, Affine) else None
        if at is None or count[step.sources[0]] > 1 or not _takes_scale(steps[at], program):
            place[step.target] = len(steps)
            steps.append(step)
            continue
        assert isinstance(step, Affine)
        steps[at] = _scaled(steps[at], step)
        place[step.target] = at
    return with_steps(program, steps)


def _takes_scale(step: Step, program: Program) -> bool:
    """Return whether scale and shift of axis 1 can go into the weights of the step."""
    if isinstance(step, Linear) and len(program.shapes[step.target]) != 2:
        return False  # its outputs are the last axis, not axis 1
    is_layer = isinstance(step, Conv | Linear) and len(step.sources) == 1
    return (is_layer or isinstance(step, Affine)) and step.activation is None  # type: ignore[attr-defined]


def _scaled(step: Step, norm: Affine) -> Step:
    scale, shift = norm.scale.astype(np.float64), norm.shift.astype(np.float64)
    if isinstance(step, Affine):
        return replace(
            step,
            target=norm.target,
            scale=_single(step.scale * scale),
            shift=_single(step.shift * scale + shift),
        )
    assert isinstance(step, Conv | Linear)
    weight = step.weight * scale.reshape(-1, *[1] * (step.weight.ndim - 1))
    bias = shift if step.bias is None else step.bias * scale + shift
    return replace(step, target=norm.target, weight=_single(weight), bias=_single(bias))


# ---------------------------------------------------------------- batch norm before a layer


def _fold_before(program: Program) -> Program:
    """A shift goes through a convolution only if no padding lies between: padded zeros are not shifted."""
    count = reads(program)
    norms = {step.target: step for step in program if isinstance(step, Affine) and step.activation is None}
    steps: list[Step] = []
    for step in program:
        norm = norms.get(step.sources[0]) if isinstance(step, Conv | Linear) else None
        if norm is not None and count[norm.target] == 1 and _takes_shift(step, program):
            assert isinstance(step, Conv | Linear)
            step = _after(step, norm)
        steps.append(step)
    return without_unread(with_steps(program, steps))


def _takes_shift(step: Step, program: Program) -> bool:
    if isinstance(step, Conv):
        return step.padding == (0, 0)
    return len(program.shapes[step.sources[0]]) == 2


def _after(step: Conv | Linear, norm: Affine) -> Step:
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
        step, sources=(norm.sources[0], *step.sources[1:]), weight=_single(weight), bias=_single(bias)
    )


def _single(array: Any) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float32)


# ---------------------------------------------------------------- zeros around a picture


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
            weight, padding, dilation = symmetric(step.weight, all_sides, step.dilation)
            step = replace(step, sources=pad.sources, weight=weight, padding=padding, dilation=dilation)
        steps.append(step)
    return with_steps(program, steps)


def _sides(step: InTorch) -> Sides | None:
    """Return the zeros that the step adds to height and width, if that is all it does."""
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
