"""Find the channels that must be kept: those that are needed, and those tied to them."""

import numpy as np
import numpy.typing as npt

from ..program import Add, Affine, Concat, Conv, Elementwise, Linear, Program, Reshape, Step
from .axes import POOLS, Axes, flattening, is_depthwise, mixes_channels
from .constants import Constants, absorbable

__all__ = ["Mask", "kept_channels"]

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


def kept_channels(program: Program, axes: Axes, constants: Constants) -> dict[str, Mask]:
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
        match step:
            case Conv() | Linear() if mixes_channels(step, self.program, self.axes):
                is_read = step.weight.any(axis=(0, *range(2, step.weight.ndim)))
                self.used.append((source, is_read & ~absorbable(step, self.constants[source])))
                self._assign_numbers(step.target)
                self._tie(step, step.sources[1:])
            case Conv() if is_depthwise(step) and self.axes[source] == 1:
                self._assign_numbers(step.target)
                self._tie(step, step.sources)
            case Linear():
                self.whole.append(source)
                self._assign_numbers(step.target)
                self._tie(step, step.sources[1:])
            case Concat() if axis is not None:
                self.numbers[step.target] = np.concatenate([self.numbers[each] for each in step.sources])
            case Reshape() if found := self._flattening(step):
                self.numbers[step.target] = np.repeat(self.numbers[source], found[0])
            case Add() | Elementwise() | Affine() if axis is not None:
                self._assign_numbers(step.target)
                self._tie(step, step.sources)
            case _ if isinstance(step, POOLS) and axis is not None:
                self.numbers[step.target] = self.numbers[source]
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

    def _flattening(self, step: Reshape) -> tuple[int, int] | None:
        source = step.sources[0]
        return flattening(self.program.shapes[source], self.program.shapes[step.target], self.axes[source])
