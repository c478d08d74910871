"""Compute on the form of a value that the engine has kernels for, whatever form the model is written in.

A model may write images as (n, h, w, c) or (n, c, t), and rows as (n, c, 1, 1). Each such value has a twin: the same
numbers as (n, c, h, w), as (n, c, 1, t), or as (n, c). Where the sources of a step have twins, the step computes the
target's twin; the target itself is made from it if some step still reads it.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple

import torch

from ..frontend import Read, TorchCall
from ..program import (
    Affine,
    Conv,
    Elementwise,
    GlobalAverage,
    InTorch,
    Linear,
    Norm,
    Pairwise,
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


class Twin(NamedTuple):
    """The name of the twin, and the form of the value itself."""

    name: str
    form: Form


def use_twins(program: Program) -> Program:
    """Return the program with every step that can be moved to twins moved there."""
    walk = _Walk(program)
    for step in program:
        walk.visit(replace(step, sources=tuple(walk.same.get(name, name) for name in step.sources)))
    outputs = tuple(walk.same.get(name, name) for name in program.outputs)
    assert outputs == program.outputs
    return replace(program, shapes=walk.shapes).with_steps(walk.steps).without_unread_steps()


class _Walk:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.shapes = dict(program.shapes)
        self.steps: list[Step] = []
        self.twins: dict[str, Twin] = {}
        self.same: dict[str, str] = {}  # values that turned out to be others

    def visit(self, step: Step) -> None:
        source = step.sources[0] if step.sources else ""
        form, is_back = self._change_of_form(step)
        if form and is_back and source in self.twins and self.twins[source].form is form:
            if step.target in self.program.outputs:
                self.steps.append(replace(step, sources=(source,)))
            else:
                self.same[step.target] = self.twins[source].name
            return
        if form and not is_back:
            self.twins[step.target] = Twin(source, form)
        elif made := self._on_twins(step):
            new, form = made
            self.steps.append(new)
            self.shapes[new.target] = _twin_shape(self.shapes[step.target], form)
            self.twins[step.target] = Twin(new.target, form)
            step = _back(new.target, step, form)
        self.steps.append(step)

    def _change_of_form(self, step: Step) -> tuple[Form | None, bool]:
        """Return the form that a step writes, or reads if `is_back`; None if it is another step."""
        match step:
            case InTorch(function=TorchCall(torch.ops.aten.permute.default, (Read(), order))):
                if [*order] in (TO_LAST, TO_FIRST):
                    return Form.LAST, [*order] == TO_FIRST
            case Reshape(sources=(source,)):
                before, after = self.shapes[source], self.shapes[step.target]
                for form in (Form.SEQUENCE, Form.PIXEL):
                    if _has_form(after, form) and before == _twin_shape(after, form):
                        return form, False
                    if _has_form(before, form) and after == _twin_shape(before, form):
                        return form, True
        return None, False

    def _on_twins(self, step: Step) -> tuple[Step, Form] | None:
        """Return the step that computes the twin of its target, if its sources have twins."""
        shape = self.shapes[step.target]
        if isinstance(step, GlobalAverage) and shape[2:] == (1, 1):
            return replace(step, target=f"{step.target}:twin"), Form.PIXEL
        found = [self.twins.get(name) for name in step.sources]
        forms = {twin.form if twin else None for twin in found}
        if len(forms) != 1 or None in forms or any(self.shapes[name][0] != shape[0] for name in step.sources):
            return None
        (form,) = forms
        assert form is not None
        convert = _CONVERT.get((type(step), form))
        made = convert(step, self.shapes) if convert else None
        if made is None:
            return None
        sources = tuple(twin.name for twin in found if twin)
        return replace(made, sources=sources, target=f"{step.target}:twin"), form


def _has_form(shape: Shape, form: Form) -> bool:
    return {Form.LAST: len(shape) == 4, Form.SEQUENCE: len(shape) == 3, Form.PIXEL: shape[2:] == (1, 1)}[form]


def _twin_shape(shape: Shape, form: Form) -> Shape:
    match form:
        case Form.LAST:
            images, high, wide, channels = shape
            return images, channels, high, wide
        case Form.SEQUENCE:
            return (*shape[:2], 1, *shape[2:])
    return shape[:2]


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


def _affine(step: Affine, shapes: dict[str, Shape], axis: int) -> Step | None:
    """A scale and shift per channel; the channels of a twin are axis 1, those of the value are `axis`."""
    rank = len(shapes[step.target])
    if step.axis % rank == axis % rank:
        return replace(step, axis=1)
    if (step.scale != step.scale[0]).any() or (step.shift != step.shift[0]).any():
        return None
    channels = shapes[step.target][axis]
    scale, shift = (each[:1].repeat(channels) for each in (step.scale, step.shift))
    return replace(step, scale=scale, shift=shift, axis=1)


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
}
for _form, _axis in ((Form.LAST, -1), (Form.SEQUENCE, 1), (Form.PIXEL, 1)):
    _CONVERT[Affine, _form] = partial(_affine, axis=_axis)
    _CONVERT |= dict.fromkeys(
        [(kind, _form) for kind in (Elementwise, *Pairwise.__subclasses__())], _unchanged
    )
