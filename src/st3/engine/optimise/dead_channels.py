"""Remove dead channels: channels that are constant, and channels that no step reads.

A filter of zeros makes a constant channel, which the biases of its readers can absorb. A channel for which all readers
have zero weights need not be computed. Channels that are tied (through additions, pooling, depthwise convolutions) are
removed together or not at all.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..program import Floats, Flow, Layer, Mask, Program, Select, Shape, Step
from .channels import (
    Axes,
    Constants,
    absorbable,
    channel_axes,
    constant_channels,
    flattening,
    mixes_channels,
)

__all__ = ["drop_dead_channels"]

Numbers = npt.NDArray[np.int64]


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


def _shape(shape: Shape, axis: int | None, keep: Mask) -> Shape:
    return shape if axis is None else (*shape[:axis], int(keep.sum()), *shape[axis + 1 :])


def _drop_inputs(step: Step, inputs: Mask, constants: npt.NDArray[np.float64]) -> Layer:
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
        self.numbers: dict[str, Numbers] = {}
        self.root: Numbers = np.zeros(0, np.int64)
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

    def _roots(self, name: str) -> Numbers:
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
