"""Which axis of a value its channels lie on: axis 1 of pictures, the last one of what a linear layer makes."""

import math

from ..program import (
    AdaptiveAverage,
    Add,
    Affine,
    AveragePool,
    Concat,
    Conv,
    Elementwise,
    GlobalAverage,
    Linear,
    MaxPool,
    Program,
    Reshape,
    Shape,
    Step,
)

__all__ = ["POOLS", "Axes", "channel_axes", "flattening", "is_depthwise", "mixes_channels"]

Axes = dict[str, int | None]  # None: no axis of the value can be taken apart
POOLS = (MaxPool, AveragePool, GlobalAverage, AdaptiveAverage)


def channel_axes(program: Program) -> Axes:
    """Return the axis of every value."""
    axes: Axes = {name: _usual(program.shapes[name]) for name in program.inputs}
    for step in program:
        axes[step.target] = _made(step, program, axes)
    return axes


def _usual(shape: Shape) -> int | None:
    return 1 if len(shape) in (2, 4) else None


def _made(step: Step, program: Program, axes: Axes) -> int | None:
    shape, of_sources = program.shapes[step.target], {axes[source] for source in step.sources}
    match step:
        case Conv():
            return 1
        case Linear():
            return len(shape) - 1
        case Elementwise():
            return axes[step.sources[0]]
        case Add() if len(of_sources) == 1:
            return axes[step.sources[0]]
        case Affine() | Concat() | MaxPool() | AveragePool() | GlobalAverage() | AdaptiveAverage():
            return 1 if of_sources == {1} else None
        case Reshape():
            found = flattening(program.shapes[step.sources[0]], shape, axes[step.sources[0]])
            return found[1] if found else _usual(shape)
    return _usual(shape)


def flattening(before: Shape, after: Shape, axis: int | None) -> tuple[int, int] | None:
    """Return (entries of the new axis per channel, the new axis) if a reshape leaves channels apart.

    >>> flattening((2, 8, 3, 3), (2, 72), 1)
    (9, 1)
    >>> flattening((2, 5, 8), (10, 8), 2)
    (1, 1)
    """
    if axis == 1 and before[0] == after[0]:
        if before[:2] == after[:2]:
            return 1, 1
        if len(after) == 2:
            return math.prod(before[2:]), 1
    if axis == len(before) - 1 and before[-1] == after[-1]:
        return 1, len(after) - 1
    return None


def is_depthwise(step: Step) -> bool:
    """Return whether every channel is convolved by itself."""
    return (
        isinstance(step, Conv)
        and step.groups > 1
        and step.groups == len(step.weight)
        and step.weight.shape[1] == 1
    )


def mixes_channels(step: Conv | Linear, program: Program, axes: Axes) -> bool:
    """Return whether the second axis of the weight is the source's channels."""
    source = step.sources[0]
    if isinstance(step, Conv):
        return step.groups == 1 and axes[source] == 1
    return axes[source] == len(program.shapes[source]) - 1
