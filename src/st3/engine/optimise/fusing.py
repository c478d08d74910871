"""Two steps as one: batch norms and padding folded into layers, activations and residual additions fused into the step
before, consecutive steps in torch.

Folded weights are computed in float64 and rounded once.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..frontend import Read, TorchCall
from ..frontend.layers import Sides, make_symmetric
from ..program import (
    Activated,
    Add,
    Affine,
    Conv,
    Elementwise,
    Floats,
    InTorch,
    Layer,
    Norm,
    Pairwise,
    Program,
    Reshape,
    Select,
    Shape,
    Softmax,
    Step,
)
from ..reference import evaluate

__all__ = ["fold", "fuse"]

LIGHT = (Affine, Pairwise, Elementwise, Select, Softmax)  # cost less than bringing their sources elsewhere


def fold(program: Program) -> Program:
    """Fold padding before a layer, batch norm after a layer, and batch norm before a layer, where that is exact."""
    program = _fold_padding(program).without_unread_steps()
    return _fold_norms_before_layers(_fold_norms_after_layers(program))


def fuse(program: Program) -> Program:
    """Fuse two steps where the value between them has no other reader."""
    program = _fuse_activations(_fuse_residuals(_fuse_activations(_leave_in_torch(program))))
    return _fuse_torch_steps(program)


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


# ---------------------------------------------------------------- steps in torch


def _leave_in_torch(program: Program) -> Program:
    """Move light steps to torch if it computes all their sources, and reshapes if it also reads what they return."""
    in_torch: set[str] = set()
    readers: dict[str, list[Step]] = {}
    for step in program:
        for source in step.sources:
            readers.setdefault(source, []).append(step)
    steps: list[Step] = []
    for step in program:
        if isinstance(step, InTorch):
            in_torch.add(step.target)
        elif step.sources and in_torch.issuperset(step.sources):
            is_read_there = all(isinstance(each, InTorch) for each in readers.get(step.target, [step]))
            if isinstance(step, LIGHT) or (isinstance(step, Reshape) and is_read_there):
                step = _in_torch(step, program.shapes[step.target])
                in_torch.add(step.target)
        steps.append(step)
    return program.with_steps(steps)


def _in_torch(step: Step, shape: Shape) -> InTorch:
    reads = tuple(Read(source) for source in step.sources)
    call = TorchCall(InReference(step, shape), reads, {}, step.target, is_value=True)
    why = "torch computes its sources"
    return InTorch(name=step.name, sources=call.sources, target=step.target, function=call, why=why)


@dataclass(frozen=True, eq=False)
class InReference:
    """A step as a function of tensors."""

    step: Step
    shape: Shape

    @property
    def __name__(self) -> str:
        return type(self.step).__name__.lower()

    def __call__(self, *sources: Tensor) -> Tensor:
        return evaluate(self.step, list(sources), self.shape)


def _fuse_torch_steps(program: Program) -> Program:
    """Fuse two torch steps if the first has no other reader, which saves the copy in between."""
    count = program.count_reads()
    calls: dict[str, TorchCall] = {}  # value -> the call that computes it, if it is read once
    steps: dict[str, Step] = {}
    for step in program:
        if isinstance(step, InTorch) and isinstance(step.function, TorchCall):
            call = step.function
            for source in step.sources:
                if source in calls and call.reads.count(source) == 1:
                    call = call.with_inner(calls[source])
                    del steps[source]
            step = replace(step, sources=call.sources, function=call)
            if count[step.target] == 1:
                calls[step.target] = call
        steps[step.target] = step
    return program.with_steps(list(steps.values()))


# ---------------------------------------------------------------- activations and residuals


def _fuse_activations(program: Program) -> Program:
    count = program.count_reads()
    place: dict[str, int] = {}
    steps: list[Step] = []
    for step in program:
        at = place.get(step.sources[0]) if isinstance(step, Elementwise) else None
        before = steps[at] if at is not None and count[step.sources[0]] == 1 else None
        if at is None or not isinstance(before, Activated) or before.activation is not None:
            place[step.target] = len(steps)
            steps.append(step)
            continue
        assert isinstance(step, Elementwise)
        steps[at] = replace(before, target=step.target, activation=step.activation)
        place[step.target] = at
    return program.with_steps(steps)


def _fuse_residuals(program: Program) -> Program:
    """Fuse an addition into the layer that computes one operand: the later one, so that the other operand exists."""
    count = program.count_reads()
    makers = {step.target: at for at, step in enumerate(program)}
    steps: list[Step | None] = list(program)
    for at, add in enumerate(program):
        if not isinstance(add, Add) or len({program.shapes[name] for name in add.sources}) > 1:
            continue
        made = {makers[name]: name for name in add.sources if name in makers and count[name] == 1}
        ready = [place for place, name in made.items() if _can_take_residual(steps[place], name)]
        if not ready:
            continue
        layer = steps[max(ready)]
        assert isinstance(layer, Layer)
        other = add.sources[1] if add.sources[0] == layer.target else add.sources[0]
        steps[max(ready)] = None
        steps[at] = replace(
            layer, sources=(layer.sources[0], other), target=add.target, activation=add.activation
        )
    return program.with_steps([step for step in steps if step is not None])


def _can_take_residual(step: Step | None, value: str) -> bool:
    match step:
        case Layer(activation=None, sources=(_,)):
            return step.target == value
    return False
