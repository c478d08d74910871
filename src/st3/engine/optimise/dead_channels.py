"""Remove dead channels: channels that are constant, and channels that no step reads.

A filter of zeros makes a constant channel, which the biases of its readers can absorb. A channel for which all readers
have zero weights need not be computed. Channels that are tied (through additions, pooling, depthwise convolutions) are
removed together or not at all.

A channel is constant if it has the same number at every pixel for every input.
"""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from ..program import Activation, Floats, Flow, Layer, Mask, PerChannel, Program, Select, Shape, Step
from ..reference import activate, evaluate

__all__ = ["drop_dead_channels"]

Axes = dict[str, int | None]  # None: the value has no channel axis
Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Constants = dict[str, Numbers]  # value -> one number per channel, NaN if it is not constant


def drop_dead_channels(program: Program) -> Program:
    """Return an equivalent program without dead channels; every value keeps at least one channel."""
    while True:  # a removed filter may have been the last reader of a channel
        axes = channel_axes(program)
        constants = constant_channels(program, axes)
        keep = _kept_channels(program, axes, constants)
        if all(mask.all() for mask in keep.values()):
            return program
        steps = []
        for step in program:
            if axes[step.target] is not None:
                if mixes_channels(step, program, axes):
                    step = _drop_inputs(step, keep[step.sources[0]], constants[step.sources[0]])
                if isinstance(step, Select):  # its numbers count the channels that are left
                    places = np.cumsum(keep[step.sources[0]]) - 1
                    step = replace(step, index=places[step.index[keep[step.target]]])
                step = step.keep_channels(keep[step.target])
            steps.append(step)
        shapes = {name: _shape(shape, axes[name], keep[name]) for name, shape in program.shapes.items()}
        program = replace(program, steps=tuple(steps), shapes=shapes)


# ---------------------------------------------------------------- what is known about channels


def channel_axes(program: Program) -> Axes:
    """Return the channel axis of every value: axis 1 of images, the last axis of a linear layer's output."""
    axes: Axes = {name: _usual_axis(program.shapes[name]) for name in program.inputs}
    for step in program:
        axes[step.target] = _target_axis(step, program, axes)
    return axes


def _usual_axis(shape: Shape) -> int | None:
    return 1 if len(shape) in (2, 4) else None


def _target_axis(step: Step, program: Program, axes: Axes) -> int | None:
    shape, of_sources = program.shapes[step.target], {axes[source] for source in step.sources}
    own = None if step.channel_axis is None else step.channel_axis % len(shape)
    match step.flow:
        case Flow.APART | Flow.JOINED | Flow.SELECTED if not isinstance(step, Layer):
            return of_sources.pop() if len(of_sources) == 1 and own in (None, *of_sources) else None
        case Flow.RESHAPED:
            found = flattening(program.shapes[step.sources[0]], shape, axes[step.sources[0]])
            return found[1] if found else _usual_axis(shape)
    return _usual_axis(shape) if own is None else own


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


def mixes_channels(step: Step, program: Program, axes: Axes) -> bool:
    """Return whether the step is a layer, and the second axis of its weight is the source's channel axis."""
    if step.flow is not Flow.MIXED or step.channel_axis is None:
        return False
    source = step.sources[0]
    return axes[source] == step.channel_axis % len(program.shapes[source])


def constant_channels(program: Program, axes: Axes) -> Constants:
    """Propagate constant channels through the program, from the filters of zeros that make them."""
    constants: Constants = {}
    for name, shape in program.shapes.items():
        axis = axes[name]
        constants[name] = np.full(1 if axis is None else shape[axis], np.nan)
    for step in program:
        if axes[step.target] is not None:
            found = _target_constants(step, program, axes, constants)
            constants[step.target] = constants[step.target] if found is None else found
    return constants


def absorbable(step: Step, constants: Numbers) -> Mask:
    """Return which channels of its source are constant for the step; with padding, only zeros."""
    is_known: Mask = constants == 0 if step.reads_padding else ~np.isnan(constants)
    return is_known


def _target_constants(step: Step, program: Program, axes: Axes, constants: Constants) -> Numbers | None:
    of = [constants[source] for source in step.sources]
    if isinstance(step, Layer):
        return _layer_constants(step, program, axes, of)
    match step.flow:
        case Flow.APART if isinstance(step, PerChannel):
            return np.where(absorbable(step, of[0]), of[0], np.nan)
        case Flow.APART:
            return _pixel_constants(step, of)
        case Flow.JOINED:
            return np.concatenate(of)
        case Flow.SELECTED if isinstance(step, Select):
            return of[0][step.index]
        case Flow.RESHAPED:
            source = step.sources[0]
            found = flattening(program.shapes[source], program.shapes[step.target], axes[source])
            return np.repeat(of[0], found[0]) if found else None
    return None


def _layer_constants(step: Layer, program: Program, axes: Axes, of: list[Numbers]) -> Numbers:
    weight = step.weight.reshape(*step.weight.shape[:2], -1)
    is_fixed, inputs = np.zeros((1, 1), np.bool_), np.zeros((1, 1))  # by output and input, or for all
    if mixes_channels(step, program, axes):
        is_fixed, inputs = absorbable(step, of[0])[None], of[0][None]
    elif step.flow is Flow.APART and axes[step.sources[0]] == 1:
        is_fixed, inputs = absorbable(step, of[0])[:, None], of[0][:, None]
    made = np.where(
        (weight.any(axis=2) & ~is_fixed).any(axis=1), np.nan, 0.0 if step.bias is None else step.bias
    )
    if is_fixed.any() and not np.isnan(made).all():
        sums = weight.astype(np.float64).sum(axis=2) * np.where(is_fixed, inputs, 0.0)
        made = made + sums.sum(axis=1)
    if len(of) > 1:
        is_alike = (
            axes[step.sources[1]] == axes[step.target]
        )  # otherwise its channels are not those of the target
        made = made + of[1] if is_alike else np.full_like(made, np.nan)
    return _apply_activation(made, step.activation)


def _pixel_constants(step: Step, of: list[Numbers]) -> Numbers:
    """Evaluate an elementwise step on one pixel of constant channels, in float32, as the step does."""
    pixels = [
        torch.from_numpy(numbers.astype(np.float32)).view(1, -1) for numbers in of
    ]  # axis 1 is also the last
    made = evaluate(step, pixels, ()).view(-1).numpy().astype(np.float64)
    is_unknown = np.any([np.broadcast_to(np.isnan(numbers), made.shape) for numbers in of], axis=0)
    return np.where(is_unknown, np.nan, made)


def _apply_activation(numbers: Numbers, activation: Activation | None) -> Numbers:
    """Apply the activation in float32, as the step does; NaN stays NaN."""
    single = torch.from_numpy(numbers.astype(np.float32))
    made: Numbers = activate(single, activation).numpy().astype(np.float64)
    return np.where(np.isnan(numbers), np.nan, made)


# ---------------------------------------------------------------- which channels are kept


def _kept_channels(program: Program, axes: Axes, constants: Constants) -> dict[str, Mask]:
    """Return a mask of the channels to keep for every value, at least one each."""
    ties = _Ties(program, axes, constants)
    for step in program:
        ties.add_step(step)
    return ties.needed_channels()


class _Ties:
    """A union-find: every channel of every value has a number, and tied numbers have the same root."""

    def __init__(self, program: Program, axes: Axes, constants: Constants) -> None:
        self.program, self.axes, self.constants = program, axes, constants
        self.numbers: dict[str, Places] = {}
        self.root: Places = np.zeros(0, np.int64)
        self.whole: list[str] = [*program.inputs, *program.outputs]  # values that keep all their channels
        self.used: list[tuple[str, Mask]] = []  # channels that a layer reads and cannot absorb
        for name in program.inputs:
            self._assign_numbers(name)

    def add_step(self, step: Step) -> None:
        source, axis = step.sources[0] if step.sources else "", self.axes[step.target]
        match step.flow:
            case Flow.MIXED if isinstance(step, Layer):
                if mixes_channels(step, self.program, self.axes):
                    is_read = step.weight.any(axis=(0, *range(2, step.weight.ndim)))
                    self.used.append((source, is_read & ~absorbable(step, self.constants[source])))
                else:
                    self.whole.append(source)
                self._assign_numbers(step.target)
                self._tie(step, step.sources[1:])
            case Flow.APART if axis is not None:
                self._assign_numbers(step.target)
                self._tie(step, step.sources)
            case Flow.SELECTED if isinstance(step, Select) and axis is not None:
                self.numbers[step.target] = self.numbers[source][step.index]
            case Flow.JOINED if axis is not None:
                self.numbers[step.target] = np.concatenate([self.numbers[each] for each in step.sources])
            case Flow.RESHAPED if found := self._flattening(step):
                self.numbers[step.target] = np.repeat(self.numbers[source], found[0])
            case _:
                self.whole += [*step.sources, step.target]
                self._assign_numbers(step.target)

    def needed_channels(self) -> dict[str, Mask]:
        needed = np.zeros(len(self.root), np.bool_)
        for name in self.whole:
            needed[self._roots(name)] = True
        for name, mask in self.used:
            needed[self._roots(name)[mask]] = True
        for name in self.numbers:  # every value keeps at least one channel
            if not needed[self._roots(name)].any():
                needed[self._roots(name)[:1]] = True
        return {name: needed[self._roots(name)] for name in self.numbers}

    def _assign_numbers(self, name: str) -> None:
        begin = len(self.root)
        self.numbers[name] = np.arange(begin, begin + len(self.constants[name]))
        self.root = np.concatenate([self.root, self.numbers[name]])

    def _roots(self, name: str) -> Places:
        numbers = self.numbers[name]
        while (self.root[numbers] != numbers).any():
            numbers = self.root[numbers]
        return numbers

    def _tie(self, step: Step, others: tuple[str, ...]) -> None:
        """Tie the channels of the step's target to those of other values."""
        for other in others:
            if len(self.numbers[other]) != len(self.numbers[step.target]):  # broadcast over the channels
                self.whole.append(other)
                continue
            if self.axes[other] != self.axes[step.target]:
                self.whole += [other, step.target]
                continue
            for one, two in zip(self._roots(step.target), self._roots(other), strict=True):
                self._join(one, two)

    def _join(self, one: int, two: int) -> None:
        while self.root[one] != one:
            one = self.root[one]
        while self.root[two] != two:
            two = self.root[two]
        self.root[max(one, two)] = min(one, two)

    def _flattening(self, step: Step) -> tuple[int, int] | None:
        source = step.sources[0]
        return flattening(self.program.shapes[source], self.program.shapes[step.target], self.axes[source])


# ---------------------------------------------------------------- the program without the others


def _shape(shape: Shape, axis: int | None, keep: Mask) -> Shape:
    return shape if axis is None else (*shape[:axis], int(keep.sum()), *shape[axis + 1 :])


def _drop_inputs(step: Step, inputs: Mask, constants: Numbers) -> Layer:
    """Return the layer for some of its inputs; the others are constant or unread, and its bias absorbs them."""
    assert isinstance(step, Layer)
    weight = np.ascontiguousarray(step.weight[:, inputs])
    gone = np.where(inputs | np.isnan(constants), 0.0, constants)
    if not gone.any():
        return replace(step, weight=weight)
    sums = step.weight.astype(np.float64).reshape(*step.weight.shape[:2], -1).sum(axis=2)
    added = sums @ gone
    bias: Floats = np.asarray(added if step.bias is None else step.bias + added, np.float32)
    return replace(step, weight=weight, bias=bias)
