"""Find the channels that have the same value at every pixel for every input, and these values."""

import numpy as np
import numpy.typing as npt
import torch

from ..program import (
    Activation,
    Add,
    Affine,
    AveragePool,
    Concat,
    Conv,
    Elementwise,
    Linear,
    Program,
    Reshape,
    Step,
)
from ..reference import activate
from .axes import POOLS, Axes, flattening, is_depthwise, mixes_channels

__all__ = ["Constants", "absorbable", "constant_channels"]

Numbers = npt.NDArray[np.float64]
Constants = dict[str, Numbers]  # value -> one number per channel, NaN if it is not constant


def constant_channels(program: Program, axes: Axes) -> Constants:
    """Propagate constant channels through the program, from the filters of zeros that make them."""
    constants: Constants = {}
    for name, shape in program.shapes.items():
        axis = axes[name]
        constants[name] = np.full(1 if axis is None else shape[axis], np.nan)
    for step in program:
        if (
            axes[step.target] is not None
            and (found := _target_constants(step, program, axes, constants)) is not None
        ):
            constants[step.target] = found
    return constants


def absorbable(step: Conv | Linear, constants: Numbers) -> npt.NDArray[np.bool_]:
    """Return which input channels the layer's bias can absorb; with padding, only zeros."""
    is_known: npt.NDArray[np.bool_] = ~np.isnan(constants)
    if isinstance(step, Conv) and step.padding != (0, 0):
        is_known &= constants == 0
    return is_known


def _target_constants(step: Step, program: Program, axes: Axes, constants: Constants) -> Numbers | None:
    of = [constants[source] for source in step.sources]
    match step:
        case Conv() | Linear():
            return _layer_constants(step, program, axes, of)
        case Affine():
            return _apply_activation(of[0] * step.scale + step.shift, step.activation)
        case Add():
            return _apply_activation(of[0] + of[1], step.activation)
        case Elementwise():
            return _apply_activation(of[0], step.activation)
        case Concat():
            return np.concatenate(of)
        case Reshape():
            source = step.sources[0]
            found = flattening(program.shapes[source], program.shapes[step.target], axes[source])
            return np.repeat(of[0], found[0]) if found else None
        case AveragePool() if step.padding != (0, 0) or step.ceil_mode:
            return np.where(of[0] == 0, 0.0, np.nan)
    return of[0] if isinstance(step, POOLS) else None


def _layer_constants(step: Conv | Linear, program: Program, axes: Axes, of: list[Numbers]) -> Numbers:
    weight = step.weight.reshape(*step.weight.shape[:2], -1)
    is_fixed: npt.NDArray[np.bool_] = np.zeros(weight.shape[:2], np.bool_)
    inputs = np.zeros(weight.shape[:2])
    if mixes_channels(step, program, axes):
        is_fixed[:], inputs[:] = absorbable(step, of[0]), of[0]
    elif is_depthwise(step) and axes[step.sources[0]] == 1:
        is_fixed[:], inputs[:] = absorbable(step, of[0])[:, None], of[0][:, None]
    made = np.where(
        (weight.any(axis=2) & ~is_fixed).any(axis=1), np.nan, 0.0 if step.bias is None else step.bias
    )
    if is_fixed.any() and not np.isnan(made).all():
        sums = weight.astype(np.float64).sum(axis=2) * np.where(is_fixed, inputs, 0.0)
        made = made + sums.sum(axis=1)
    return _apply_activation(made + of[1] if len(of) > 1 else made, step.activation)


def _apply_activation(numbers: Numbers, activation: Activation | None) -> Numbers:
    """Apply the activation in float32, as the step does; NaN stays NaN."""
    single = torch.from_numpy(numbers.astype(np.float32))
    made: Numbers = activate(single, activation).numpy().astype(np.float64)
    return np.where(np.isnan(numbers), np.nan, made)
