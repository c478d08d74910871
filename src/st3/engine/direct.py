"""A program that is one call of the library, with everything made beforehand that can be.

A small network takes some microseconds, less than the checks and conversions of a call that takes anything.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .execution import Execution
from .executor import Executor
from .memory import fresh, no_address
from .planned import Operation
from .runtime import Runtime

__all__ = ["Direct", "direct"]


class Direct:
    """Kernels read the caller's tensors and write into new ones; an answer that lies in the arena is copied there."""

    def __init__(self, execution: Execution, steps: Any, count: int) -> None:
        program = execution.program
        self.inputs = [torch.Size(program.shapes[name]) for name in program.inputs]
        shapes = [program.shapes[name] for name in program.outputs]
        # Answers are made like these; never written, they take no memory.
        self.like = [fresh(shape) for shape in shapes]
        self.copied = [
            (number, execution.arena.view(plain.buffer, shapes[number]))
            for number, plain in enumerate(execution.outputs)
            if plain.buffer
        ]
        self.execution = execution  # its memory lives as long as the views and addresses of it
        self.pool, self.slots = execution.pool, execution.slots
        self.steps = steps  # lives as long as its address is used
        self.call = (ctypes.addressof(steps), count, ctypes.addressof(self.slots))

    def fits(self, given: Sequence[Any]) -> bool:
        """Return whether these are plain tensors that the kernels may read where they lie."""
        if len(given) != len(self.inputs):
            return False
        for each, shape in zip(given, self.inputs, strict=True):
            if not (
                type(each) is Tensor
                and each.shape == shape
                and each.dtype is torch.float32
                and each.is_cpu
                and each.layout is torch.strided
                and each.is_contiguous()
                and not each.is_neg()  # its numbers lie in memory with the other sign
            ):
                return False
        return True

    def __call__(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs for tensors that fit; one call at a time."""
        answers = [torch.empty_like(each) for each in self.like]
        for slot, tensor in enumerate((*given, *answers)):
            self.slots[slot] = tensor.data_ptr() or no_address(tensor)
        self.pool.run(*self.call)
        for number, view in self.copied:
            answers[number].copy_(view)
        return answers


def direct(executor: Executor) -> Direct | None:
    """Return the program as one call, if kernels alone compute it and every output is theirs."""
    execution = executor.execution if isinstance(executor, Runtime) else None
    if not isinstance(execution, Execution) or len(execution.segments) != 1:
        return None
    (segment,) = execution.segments
    is_given = any(0 <= plain.slot < len(execution.program.inputs) for plain in execution.outputs)
    return None if isinstance(segment, Operation) or is_given else Direct(execution, *segment)
