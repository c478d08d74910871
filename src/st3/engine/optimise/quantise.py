"""Compute layers in int8: a pass that needs the ranges of values, measured on example inputs.

Weights have a scale for each output. A value has one scale; its bytes are unsigned, and one of them stands for zero.
"""

import math
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from torch import Tensor

from ..program import (
    Conv,
    Dequantise,
    Floats,
    Linear,
    MaxPool,
    Program,
    Quantise,
    QuantisedConv,
    QuantisedLinear,
    Quantum,
    Shape,
    Step,
)
from ..reference import evaluate_all

__all__ = ["Ranges", "count_words", "quantise"]


LEAST_PIXELS = 16  # or rows, of a layer: with fewer, most lanes of a vector would be empty
MOST_TAPS = 2**31 // (255 * 127)  # of an output: more could exceed the sums' 32 bits
TINY = 1e-30  # smaller numbers are as good as zero, and have no inverse in float32
MOST_ZERO = 254  # the word of four bytes 255 is not a number, as a float


class Ranges(dict[tuple[str, int], tuple[float, float]]):
    """The least and the largest number of each source and of the target of a layer, over all inputs so far.

    They belong to the names of layers, not of values: programs for different shapes number their values differently.
    """

    def measure(self, program: Program, inputs: Sequence[Tensor]) -> None:
        """Include what one more input leads to."""
        for step, sources, made in evaluate_all(program, inputs):
            for place, value in zip(places(step), (*sources, made), strict=False):
                self.include((step.name, place), value)

    def include(self, key: tuple[str, int], value: Tensor) -> None:
        low, high = self.get(key, (0.0, 0.0))
        least, most = (float(each) for each in value.aminmax())
        if not math.isfinite(least + most):
            raise ValueError(f"it leads to NaN or infinite numbers in layer {key[0]!r}")
        self[key] = min(low, least), max(high, most)

    def of_values(self, program: Program) -> dict[str, tuple[float, float]]:
        """Return the ranges of a program's values, as far as they are known: always zero says nothing."""
        found: dict[str, tuple[float, float]] = {}
        for step in program:
            for place, name in places(step).items():
                if (step.name, place) in self:
                    low, high = self[step.name, place]
                    least, most = found.get(name, (low, high))
                    found[name] = min(low, least), max(high, most)
        return {name: (low, high) for name, (low, high) in found.items() if high - low > TINY}


def places(step: Step) -> dict[int, str]:
    """Return the values of a layer by their places: its sources, and at -1 its target; nothing for other steps."""
    return {**dict(enumerate(step.sources)), -1: step.target} if isinstance(step, Conv | Linear) else {}


def count_words(program: Program) -> int:
    """Return how many words of four weights that are not all zero the layers multiply, over all pixels."""
    total = 0
    for step in program:
        if isinstance(step, Conv | Linear):
            outputs, inputs = step.weight.shape[:2]
            padded = np.zeros((outputs, inputs + -inputs % 4, *step.weight.shape[2:]), bool)
            padded[:, :inputs] = step.weight != 0
            shape = program.shapes[step.target]
            words = padded.reshape(outputs, -1, 4, *step.weight.shape[2:]).any(axis=2)
            total += int(np.count_nonzero(words)) * math.prod(shape) // shape[step.AXIS]
    return total


def quantise(program: Program, ranges: Ranges) -> Program:
    """Return the program with its layers in int8, and max pooling between them; all else stays in float32."""
    return _Quantiser(program, ranges).run()


class _Quantiser:
    """Rewrites a program step by step. A value may exist as numbers, as bytes, or as both.

    Bytes are known by the value and the axis of its channels, which is 1 for convolutions and -1 for linear layers.
    """

    def __init__(self, program: Program, ranges: Ranges) -> None:
        self.program, self.ranges = program, ranges.of_values(program)
        self.steps: list[Step] = []
        self.shapes: dict[str, Shape] = {name: program.shapes[name] for name in program.inputs}
        self.bytes: dict[tuple[str, int], Quantum] = {}
        self.wanted: dict[tuple[str, int], bool] = {}

    def run(self) -> Program:
        for step in self.program:
            if isinstance(step, Conv | Linear) and self.fits(step):
                self.quantise(step)
            elif isinstance(step, MaxPool) and self.pools_bytes(step):
                self.pool(step)
            else:
                self.copy(step)
        for name in self.program.outputs:
            self.need_numbers(name)
        return replace(self.program, steps=tuple(self.steps), shapes=self.shapes)

    def fits(self, step: Step) -> bool:
        """Whether a step is a layer that is worth it, and whose values have known ranges."""
        if not isinstance(step, Conv | Linear) or any(name not in self.ranges for name in step.sources):
            return False
        shape = self.program.shapes[step.target]
        pixels = shape[2:] if isinstance(step, Conv) else shape[:-1]
        return math.prod(pixels) >= LEAST_PIXELS and step.weight[0].size <= MOST_TAPS

    def pools_bytes(self, step: MaxPool) -> bool:
        quantum = self.bytes.get((step.sources[0], 1))
        return quantum is not None and quantum.zero == 0 and self.wants_bytes(step.target, 1)

    def wants_bytes(self, name: str, axis: int) -> bool:
        """Whether some step that reads a value reads it as bytes."""
        if (name, axis) not in self.wanted:
            readers = self.program.readers(name)
            self.wanted[name, axis] = name in self.ranges and any(
                self.reads_bytes(step, name) for step in readers if axis == step.AXIS
            )
        return self.wanted[name, axis]

    def reads_bytes(self, step: Step, name: str) -> bool:
        if self.fits(step) and step.sources[0] == name:
            return True
        is_pooled = isinstance(step, MaxPool) and self.quantum_of(name).zero == 0
        is_kept = is_pooled or (self.fits(step) and name in step.sources[1:])
        return is_kept and step.AXIS is not None and self.wants_bytes(step.target, step.AXIS)

    def quantise(self, step: Conv | Linear) -> None:
        axis, target, quantum = step.AXIS, step.target, None
        sources, residual = list(step.sources), None
        sources[0] = as_bytes(step.sources[0], axis)
        source = self.need_bytes(step.sources[0], axis)
        if self.wants_bytes(step.target, axis):
            target, quantum = as_bytes(step.target, axis), self.quantum_of(step.target)
        for place, name in enumerate(step.sources[1:], 1):
            if quantum:
                residual, sources[place] = self.need_bytes(name, axis), as_bytes(name, axis)
            else:
                self.need_numbers(name)
        weight, scale = quantise_weight(step.weight)
        kept = {each.name: getattr(step, each.name) for each in fields(step)}
        kind = QuantisedConv if isinstance(step, Conv) else QuantisedLinear
        made = kind(
            **kept | {"sources": tuple(sources), "target": target, "weight": weight},
            weight_scale=scale,
            source_quantum=source,
            residual_quantum=residual,
            target_quantum=quantum,
        )
        if quantum:
            self.add_bytes(made, step.target, axis, quantum)
        else:
            self.add(made, self.program.shapes[step.target])

    def pool(self, step: MaxPool) -> None:
        name = step.sources[0]
        made = replace(step, sources=(as_bytes(name, 1),), target=as_bytes(step.target, 1), has_bytes=True)
        self.add_bytes(made, step.target, 1, self.bytes[name, 1])

    def copy(self, step: Step) -> None:
        for name in step.sources:
            self.need_numbers(name)
        self.add(step, self.program.shapes[step.target])

    def need_numbers(self, name: str) -> None:
        """See to it that a value exists as numbers."""
        if name not in self.shapes:
            axis, quantum = next(
                (axis, found) for (value, axis), found in self.bytes.items() if value == name
            )
            source = as_bytes(name, axis)
            made = Dequantise(
                name=f"{name} from bytes", sources=(source,), target=name, quantum=quantum, axis=axis
            )
            self.add(made, self.program.shapes[name])

    def need_bytes(self, name: str, axis: int) -> Quantum:
        """See to it that a value exists as bytes."""
        if (name, axis) not in self.bytes:
            self.need_numbers(name)
            quantum, target = self.quantum_of(name), as_bytes(name, axis)
            made = Quantise(name=target, sources=(name,), target=target, quantum=quantum, axis=axis)
            self.add_bytes(made, name, axis, quantum)
        return self.bytes[name, axis]

    def quantum_of(self, name: str) -> Quantum:
        low, high = self.ranges[name]
        scale = (high - low) / 255 if high - low > TINY else 1.0
        return Quantum(scale, min(MOST_ZERO, round(-low / scale)))

    def add_bytes(self, step: Step, name: str, axis: int, quantum: Quantum) -> None:
        shape = list(self.program.shapes[name])
        shape[axis] = -(-shape[axis] // 4)
        self.bytes[name, axis] = quantum
        self.add(step, tuple(shape))

    def add(self, step: Step, shape: Shape) -> None:
        self.steps.append(step)
        self.shapes[step.target] = shape


def as_bytes(name: str, axis: int) -> str:
    """Return the name of a value as bytes."""
    return f"{name} in bytes" if axis == 1 else f"{name} in bytes, by rows"


def quantise_weight(weight: Floats) -> tuple[Floats, Floats]:
    """Return a weight in int8, rounded, and the scale of each output."""
    flat = weight.reshape(len(weight), -1)
    most = np.abs(flat).max(axis=1)
    scale = np.where(most > TINY, most / 127, 1.0).astype(np.float32)
    return np.rint(flat / scale[:, None]).astype(np.int8).reshape(weight.shape), scale
