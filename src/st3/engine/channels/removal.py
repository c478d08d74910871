"""Remove dead channels from weights, biases and shapes."""

from dataclasses import replace

import numpy as np

from ..program import Affine, Conv, Floats, Linear, Program, Shape, Step
from .axes import channel_axes, is_depthwise, mixes_channels
from .constants import Constants, constant_channels
from .ties import Mask, kept_channels

__all__ = ["drop_dead_channels"]


def drop_dead_channels(program: Program) -> Program:
    """Return an equivalent program without dead channels; every value keeps at least one channel."""
    while True:  # a removed filter may have been the last reader of a channel
        axes = channel_axes(program)
        constants = constant_channels(program, axes)
        keep = kept_channels(program, axes, constants)
        if all(mask.all() for mask in keep.values()):
            return program
        steps = tuple(
            step if axes[step.target] is None else _shrink(step, constants, keep, _mixes(step, program, axes))
            for step in program
        )
        shapes = {name: _shape(shape, axes[name], keep[name]) for name, shape in program.shapes.items()}
        program = replace(program, steps=steps, shapes=shapes)


def _mixes(step: Step, program: Program, axes: dict[str, int | None]) -> bool:
    return isinstance(step, Conv | Linear) and mixes_channels(step, program, axes)


def _shape(shape: Shape, axis: int | None, keep: Mask) -> Shape:
    return shape if axis is None else (*shape[:axis], int(keep.sum()), *shape[axis + 1 :])


def _shrink(step: Step, constants: Constants, keep: dict[str, Mask], mixes: bool) -> Step:
    kept = keep[step.target]
    if isinstance(step, Affine):
        return replace(step, scale=step.scale[kept], shift=step.shift[kept])
    if not isinstance(step, Conv | Linear):
        return step
    weight, bias = step.weight, step.bias
    if mixes:
        inputs = keep[step.sources[0]]
        bias = _absorb_constants(step, inputs, constants)
        weight = weight[:, inputs]
    weight = np.ascontiguousarray(weight[kept])
    bias = None if bias is None else np.ascontiguousarray(bias[kept])
    if is_depthwise(step):
        assert isinstance(step, Conv)
        return replace(step, weight=weight, bias=bias, groups=len(weight))
    return replace(step, weight=weight, bias=bias)


def _absorb_constants(step: Conv | Linear, inputs: Mask, constants: Constants) -> Floats | None:
    """Return the bias plus the contribution of the removed channels, which are constant or unread."""
    numbers = constants[step.sources[0]]
    gone = np.where(inputs | np.isnan(numbers), 0.0, numbers)
    if not gone.any():
        return step.bias
    sums = step.weight.astype(np.float64).reshape(*step.weight.shape[:2], -1).sum(axis=2)
    added = sums @ gone
    return np.asarray(added if step.bias is None else step.bias + added, np.float32)
