"""Execute large batches in parts that fit the cache; threads work on different parts."""

import math
import os
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from queue import Empty, SimpleQueue

from torch import Tensor

from .execution import Execution
from .memory import empty_tensor
from .program import Conv, InTorch, Program, Softmax
from .tuning import Tuner

MAX_VALUE_BYTES = 1024 * 1024  # two values of this size fit the L2 cache


class BatchedExecution:
    """Executes a program for a batch by executing a program for a part of it several times.

    If there are at least as many parts as threads, each thread executes whole parts and never waits for another thread
    in the middle of the network.
    """

    def __init__(
        self, program: Program, part: Program, threads: int, tuner: Tuner | None, isa: str | None
    ) -> None:
        self.program, self.part = program, part
        self.size = part.shapes[part.inputs[0]][0]
        self.begins = range(0, program.shapes[program.inputs[0]][0], self.size)
        apart = threads if len(self.begins) >= threads else 1
        self.executions = [Execution(part, threads // apart, tuner, isa) for _ in range(apart)]
        self.start()

    def start(self) -> None:
        self.process, others = os.getpid(), len(self.executions) - 1
        self.workers = ThreadPoolExecutor(others, "st3") if others else None

    @property
    def execution(self) -> Execution:
        return self.executions[0]

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        if self.process != os.getpid():
            self.start()  # a fork keeps the calling thread only
        results = tuple(empty_tensor(self.program.shapes[name]) for name in self.program.outputs)
        left: SimpleQueue[int] = SimpleQueue()
        for begin in self.begins:
            left.put(begin)

        def work(execution: Execution) -> None:
            while True:
                try:
                    begin = left.get_nowait()
                except Empty:
                    return
                made = execution.run(*(each[begin : begin + self.size] for each in inputs))
                for result, piece in zip(results, made, strict=True):
                    result[begin : begin + self.size] = piece

        others = [self.workers.submit(work, each) for each in self.executions[1:]] if self.workers else []
        try:
            work(self.execution)
        finally:
            wait(others)  # otherwise they would overwrite the memory of the next call
        for other in others:
            other.result()
        return results


def batch_part(program: Program) -> Program:
    """Return the program for the largest part of the batch whose values fit the cache.

    This is the program itself if it fits, or if a step may depend on several images at once.
    """
    sizes = {shape[0] if shape else 0 for shape in program.shapes.values()}
    if len(sizes) != 1 or not any(isinstance(step, Conv) for step in program):
        return program
    if any(isinstance(step, InTorch) or (isinstance(step, Softmax) and step.axis == 0) for step in program):
        return program
    (batch,) = sizes
    largest = max(4 * math.prod(shape[1:]) for shape in program.shapes.values())
    fitting = [
        size for size in range(1, batch + 1) if batch % size == 0 and size * largest <= MAX_VALUE_BYTES
    ]
    part = max(fitting, default=1)
    if part == batch:
        return program
    return replace(program, shapes={name: (part, *shape[1:]) for name, shape in program.shapes.items()})
