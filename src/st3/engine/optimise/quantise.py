"""Compute convolutions in int8: a pass that needs the ranges of values, measured on example inputs.

Weights have a scale for each output. A value has one scale; its bytes are unsigned, and one of them stands for zero.
"""

import math
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import torch
from torch import Tensor

from ..program import (
    Conv,
    Dequantise,
    Floats,
    MaxPool,
    Program,
    Quantise,
    QuantisedConv,
    Quantum,
    Shape,
    Step,
)
from ..reference import evaluate

__all__ = ["Ranges", "quantise"]

LEAST_PIXELS = 16  # of a convolution: with fewer, most lanes of a vector would be empty
MOST_ZERO = 254  # the word of four bytes 255 is not a number, as a float


class Ranges(dict[str, tuple[float, float]]):
    """The least and the largest number of each value that a convolution reads or computes, over all inputs so far."""

    def measure(self, program: Program, inputs: Sequence[Tensor]) -> None:
        """Include what one more input leads to."""
        values = dict(zip(program.inputs, inputs, strict=True))
        wanted = {name for step in program if isinstance(step, Conv) for name in (*step.sources, step.target)}
        last_use = {source: number for number, step in enumerate(program) for source in step.sources}
        with torch.no_grad():
            for number, step in enumerate(program):
                sources = [values[name] for name in step.sources]
                values[step.target] = evaluate(step, sources, program.shapes[step.target])
                for name in {*step.sources, step.target}:
                    if last_use.get(name, number) == number:
                        value = values.pop(name)
                        if name in wanted:
                            self.include(name, value)

    def include(self, name: str, value: Tensor) -> None:
        low, high = self.get(name, (0.0, 0.0))
        least, most = (float(each) for each in value.aminmax())
        if not math.isfinite(least + most):
            raise ValueError(f"a calibration input leads to NaN or infinite numbers (value {name!r})")
        self[name] = min(low, least), max(high, most)


def quantise(program: Program, ranges: Ranges) -> Program:
    """Return the program with its convolutions in int8, and max pooling between them; all else stays in float32."""
    return _Quantiser(program, ranges).run()


class _Quantiser:
    """Rewrites a program step by step; a value may exist as numbers, as bytes, or as both."""

    def __init__(self, program: Program, ranges: Ranges) -> None:
        self.program, self.ranges = program, ranges
        self.steps: list[Step] = []
        self.shapes: dict[str, Shape] = {name: program.shapes[name] for name in program.inputs}
        self.bytes: dict[str, Quantum] = {}  # the values that exist as bytes

    def run(self) -> Program:
        for step in self.program:
            if isinstance(step, Conv) and self.fits(step):
                self.quantise(step)
            elif isinstance(step, MaxPool) and self.is_pooled_as_bytes(step):
                self.pool(step)
            else:
                self.copy(step)
        for name in self.program.outputs:
            self.need_numbers(name)
        return replace(self.program, steps=tuple(self.steps), shapes=self.shapes)

    def fits(self, step: Conv) -> bool:
        """Whether a convolution is worth it, and everything about it is known."""
        *_, height, width = self.program.shapes[step.target]
        names = (*step.sources, step.target)
        return height * width >= LEAST_PIXELS and all(name in self.ranges for name in names)

    def is_pooled_as_bytes(self, step: MaxPool) -> bool:
        quantum = self.bytes.get(step.sources[0])
        return quantum is not None and quantum.zero == 0

    def quantise(self, step: Conv) -> None:
        quanta = [self.need_bytes(name) for name in step.sources]
        weight, scale = quantise_weight(step.weight)
        kept = {each.name: getattr(step, each.name) for each in fields(Conv)}
        kept |= {
            "sources": tuple(map(as_bytes, step.sources)),
            "target": as_bytes(step.target),
            "weight": weight,
        }
        made = QuantisedConv(
            **kept,
            weight_scale=scale,
            source_quantum=quanta[0],
            residual_quantum=quanta[1] if len(quanta) > 1 else None,
            target_quantum=self.quantum_of(step.target),
        )
        self.add_bytes(made, step.target, made.target_quantum)

    def pool(self, step: MaxPool) -> None:
        name = step.sources[0]
        made = replace(step, sources=(as_bytes(name),), target=as_bytes(step.target), has_bytes=True)
        self.add_bytes(made, step.target, self.bytes[name])

    def copy(self, step: Step) -> None:
        for name in step.sources:
            self.need_numbers(name)
        self.add(step, self.program.shapes[step.target])

    def need_numbers(self, name: str) -> None:
        """See to it that a value exists as numbers."""
        if name not in self.shapes:
            made = Dequantise(
                name=f"{name} from bytes", sources=(as_bytes(name),), target=name, quantum=self.bytes[name]
            )
            self.add(made, self.program.shapes[name])

    def need_bytes(self, name: str) -> Quantum:
        """See to it that a value exists as bytes."""
        if name not in self.bytes:
            quantum = self.quantum_of(name)
            made = Quantise(name=f"{name} to bytes", sources=(name,), target=as_bytes(name), quantum=quantum)
            self.add_bytes(made, name, quantum)
        return self.bytes[name]

    def quantum_of(self, name: str) -> Quantum:
        low, high = self.ranges[name]
        scale = (high - low) / 255 or 1.0
        return Quantum(scale, min(MOST_ZERO, round(-low / scale)))

    def add_bytes(self, step: Step, name: str, quantum: Quantum) -> None:
        images, channels, *pixels = self.program.shapes[name]
        self.bytes[name] = quantum
        self.add(step, (images, -(-channels // 4), *pixels))

    def add(self, step: Step, shape: Shape) -> None:
        self.steps.append(step)
        self.shapes[step.target] = shape


def as_bytes(name: str) -> str:
    """Return the name of a value as bytes."""
    return f"{name} in bytes"


def quantise_weight(weight: Floats) -> tuple[Floats, Floats]:
    """Return a weight in int8, rounded, and the scale of each output."""
    most = np.abs(weight).max(axis=(1, 2, 3))
    scale = np.where(most > 0, most / 127, 1.0).astype(np.float32)
    return np.rint(weight / scale[:, None, None, None]).astype(np.int8), scale
