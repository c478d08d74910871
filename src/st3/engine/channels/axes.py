"""The channel axis of every value: axis 1 of images, the last axis of a linear layer's output."""

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

Axes = dict[str, int | None]  # None: the value has no channel axis
POOLS = (MaxPool, AveragePool, GlobalAverage, AdaptiveAverage)


def channel_axes(program: Program) -> Axes:
    """Return the channel axis of every value."""
    axes: Axes = {name: _default_axis(program.shapes[name]) for name in program.inputs}
    for step in program:
        axes[step.target] = _target_axis(step, program, axes)
    return axes


def _default_axis(shape: Shape) -> int | None:
    return 1 if len(shape) in (2, 4) else None


def _target_axis(step: Step, program: Program, axes: Axes) -> int | None:
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
            return found[1] if found else _default_axis(shape)
    return _default_axis(shape)


def flattening(before: Shape, after: Shape, axis: int | None) -> tuple[int, int] | None:
    """Return (elements of the new axis per channel, the new axis) if a reshape keeps channels apart.

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
    """Return whether the step is a depthwise convolution."""
    return (
        isinstance(step, Conv)
        and step.groups > 1
        and step.groups == len(step.weight)
        and step.weight.shape[1] == 1
    )


def mixes_channels(step: Conv | Linear, program: Program, axes: Axes) -> bool:
    """Return whether the second axis of the weight is the source's channel axis."""
    source = step.sources[0]
    if isinstance(step, Conv):
        return step.groups == 1 and axes[source] == 1
    return axes[source] == len(program.shapes[source]) - 1
