"""Compute on the form of a value that the engine has kernels for, whatever form the model is written in.

A model may write images as (n, h, w, c) or (n, c, t), rows as (n, c, 1, 1), and flatten rows before every layer. Each
such value has a twin: the same numbers as (n, c, h, w), as (n, c, 1, t), as (n, c), or as before they were flattened.
Where the sources of a step have twins, the step computes the target's twin; the target itself is made from it if some
step still reads it.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple

import torch

from ..frontend import Read, TorchCall
from ..program import (
    Add,
    Affine,
    Conv,
    Elementwise,
    GlobalAverage,
    InTorch,
    Linear,
    Multiply,
    Norm,
    Program,
    Reshape,
    Shape,
    Step,
)

__all__ = ["use_twins"]

TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


class Form(Enum):
    """How a value is written, and its twin."""

    LAST = auto()  # (n, h, w, c) of (n, c, h, w)
    SEQUENCE = auto()  # (n, c, t) of (n, c, 1, t)
    PIXEL = auto()  # (n, c, 1, 1) of (n, c)
    ROWS = auto()  # (n * t, c) of (n, t, c)


class Twin(NamedTuple):
    """The name of the twin, and the form of the value itself."""

    name: str
    form: Form


def use_twins(program: Program) -> Program:
    """Return the program with every step that can be moved to twins moved there."""
    walk = _Walk(program)
    for step in program:
        walk.visit(_rename(step, walk.same))
    return replace(program, shapes=walk.shapes).with_steps(walk.steps).without_unread_steps()


def _rename(step: Step, names: dict[str, str]) -> Step:
    """Return the step with other sources in place of some."""
    if isinstance(step, InTorch) and isinstance(step.function, TorchCall):
        call = step.function.rename(names)
        return replace(step, sources=call.sources, function=call)
    return replace(step, sources=tuple(names.get(name, name) for name in step.sources))


class _Walk:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.shapes = dict(program.shapes)
        self.steps: list[Step] = []
        self.twins: dict[str, Twin] = {}
        self.same: dict[str, str] = {}  # values that turned out to be others

    def visit(self, step: Step) -> None:
        source = step.sources[0] if step.sources else ""
        if source in self.twins and self._is_back(step, self.twins[source]):
            if step.target not in self.program.outputs:
                self.same[step.target] = self.twins[source].name
                return
        elif form := self._written_form(step):
            self.twins[step.target] = Twin(source, form)
        elif made := self._on_twins(step):
            new, form = made
            self.steps.append(new)
            self.shapes[new.target] = _twin_shape(self.shapes[step.target], form, self.shapes[new.sources[0]])
            self.twins[step.target] = Twin(new.target, form)
            step = _back(new.target, step, form)
        self.steps.append(step)

    def _is_back(self, step: Step, twin: Twin) -> bool:
        """Whether a step makes the twin of its source."""
        if twin.form is Form.LAST:
            return _axis_order(step) == TO_FIRST
        return isinstance(step, Reshape) and self.shapes[step.target] == self.shapes[twin.name]

    def _written_form(self, step: Step) -> Form | None:
        """Return the form in which a step writes its source, if its source is a twin of its target."""
        if _axis_order(step) == TO_LAST:
            return Form.LAST
        if isinstance(step, Reshape):
            before, after = self.shapes[step.sources[0]], self.shapes[step.target]
            if len(after) == 3 and before == (*after[:2], 1, after[2]):
                return Form.SEQUENCE
            if after == (*before, 1, 1) and len(before) == 2:
                return Form.PIXEL
            if len(after) == 2 < len(before) and before[-1] == after[-1]:
                return Form.ROWS
        return None

    def _on_twins(self, step: Step) -> tuple[Step, Form] | None:
        """Return the step that computes the twin of its target, if its sources have twins."""
        shape = self.shapes[step.target]
        if isinstance(step, GlobalAverage) and shape[2:] == (1, 1):
            return replace(step, target=f"{step.target}:twin"), Form.PIXEL
        found = [self.twins.get(name) for name in step.sources]
        forms = {twin.form if twin else None for twin in found}
        if len(forms) != 1 or None in forms or any(self.shapes[name][0] != shape[0] for name in step.sources):
            return None
        if (
            len({self.shapes[twin.name][:-1] for twin in found if twin}) != 1
        ):  # rows flattened in different ways
            return None
        (form,) = forms
        assert form is not None
        convert = _CONVERT.get((type(step), form))
        made = convert(step, self.shapes) if convert else None
        if made is None:
            return None
        sources = tuple(twin.name for twin in found if twin)
        return replace(made, sources=sources, target=f"{step.target}:twin"), form


def _axis_order(step: Step) -> list[int] | None:
    """Return the order of axes if a step does nothing but change it."""
    match step:
        case InTorch(function=TorchCall(torch.ops.aten.permute.default, (Read(), order))):
            return [*order]
    return None


def _twin_shape(shape: Shape, form: Form, source: Shape) -> Shape:
    """Return the shape of the twin of a step's target; `source` is that of the twin of the step's source."""
    match form:
        case Form.LAST:
            images, high, wide, channels = shape
            return images, channels, high, wide
        case Form.SEQUENCE:
            return (*shape[:2], 1, *shape[2:])
        case Form.PIXEL:
            return shape[:2]
    return (*source[:-1], shape[-1])


def _back(twin: str, step: Step, form: Form) -> Step:
    """Return the step that makes a value from its twin."""
    if form is not Form.LAST:
        return Reshape(name=step.name, sources=(twin,), target=step.target)
    call = TorchCall(torch.ops.aten.permute.default, (Read(twin), TO_LAST), {}, step.target, is_value=True)
    why = "it changes the order of axes"
    return InTorch(name=step.name, sources=(twin,), target=step.target, function=call, why=why)


Convert = Callable[[Any, dict[str, Shape]], Step | None]


def _unchanged(step: Step, shapes: dict[str, Shape]) -> Step | None:
    """Steps on values of one shape compute the same on twins."""
    return step if all(shapes[name] == shapes[step.target] for name in step.sources) else None


def _affine(step: Affine, shapes: dict[str, Shape], axis: int, twin_axis: int) -> Step | None:
    """A scale and shift per channel; the channels of the value are `axis`, those of its twin `twin_axis`."""
    rank = len(shapes[step.target])
    if step.axis % rank == axis % rank:
        return replace(step, axis=twin_axis)
    if (step.scale != step.scale[0]).any() or (step.shift != step.shift[0]).any():
        return None
    channels = shapes[step.target][axis]
    scale, shift = (each[:1].repeat(channels) for each in (step.scale, step.shift))
    return replace(step, scale=scale, shift=shift, axis=twin_axis)


def _norm(step: Norm, shapes: dict[str, Shape]) -> Step | None:
    return replace(step, axis=1) if step.axis == -1 else None


def _pointwise(step: Linear, shapes: dict[str, Shape]) -> Step:
    return Conv(
        name=step.name,
        sources=step.sources,
        target=step.target,
        weight=step.weight[:, :, None, None],
        bias=step.bias,
    )


def _linear(step: Conv, shapes: dict[str, Shape]) -> Step | None:
    if step.weight.shape[2:] != (1, 1) or step.padding != (0, 0) or step.groups != 1:
        return None
    weight = step.weight[:, :, 0, 0]
    return Linear(name=step.name, sources=step.sources, target=step.target, weight=weight, bias=step.bias)


_CONVERT: dict[tuple[type[Step], Form], Convert] = {
    (Linear, Form.LAST): _pointwise,
    (Norm, Form.LAST): _norm,
    (Conv, Form.PIXEL): _linear,
    (Linear, Form.ROWS): lambda step, _: step,
    (Norm, Form.ROWS): lambda step, _: step,
}
for _form, _axis, _twin_axis in (
    (Form.LAST, -1, 1),
    (Form.SEQUENCE, 1, 1),
    (Form.PIXEL, 1, 1),
    (Form.ROWS, -1, -1),
):
    _CONVERT[Affine, _form] = partial(_affine, axis=_axis, twin_axis=_twin_axis)
    for _kind in (Elementwise, Add, Multiply):
        _CONVERT[_kind, _form] = _unchanged
