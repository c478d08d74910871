"""Large batches in parts that stay in the cache."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from .execution import Execution
from .program import Conv, InTorch, Program, Softmax
from .tuning import Tuner

LARGEST = 1024 * 1024  # bytes of one value: of two such values, both stay in the second cache


class BatchedExecution:
    """Executes a program for a batch by executing one for a part of it several times."""

    def __init__(
        self, program: Program, part: Program, threads: int, tuner: Tuner | None, isa: str | None
    ) -> None:
        self.program, self.part = program, part
        self.execution = Execution(part, threads, tuner, isa)

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        results = tuple(torch.empty(self.program.shapes[name]) for name in self.program.outputs)
        size = self.part.shapes[self.part.inputs[0]][0]
        for begin in range(0, len(inputs[0]), size):
            made = self.execution.run(*(each[begin : begin + size] for each in inputs))
            for result, piece in zip(results, made, strict=True):
                result[begin : begin + size] = piece
        return results


def part_of(program: Program) -> Program:
    """Return the program for the largest part of the batch whose values stay in the cache.

    The program itself, where steps may look at several pictures at once.
    """
    sizes = {shape[0] if shape else 0 for shape in program.shapes.values()}
    if len(sizes) != 1 or not any(isinstance(step, Conv) for step in program):
        return program
    if any(isinstance(step, InTorch) or (isinstance(step, Softmax) and step.axis == 0) for step in program):
        return program
    (batch,) = sizes
    largest = max(4 * math.prod(shape[1:]) for shape in program.shapes.values())
    fitting = [size for size in range(1, batch + 1) if batch % size == 0 and size * largest <= LARGEST]
    part = max(fitting, default=1)
    if part == batch:
        return program
    return replace(program, shapes={name: (part, *shape[1:]) for name, shape in program.shapes.items()})
