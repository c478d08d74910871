"""The fast path: a program that is a single library call, with everything else prepared in advance.

A small network takes a few microseconds, less than the checks and conversions of the general call.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .execution import Execution
from .executor import Executor
from .memory import empty_tensor, refuse_no_storage
from .operation import Operation
from .runtime import Runtime

__all__ = ["FastPath", "make_fast_path"]


class FastPath:
    """Kernels read the caller's tensors and write new ones; outputs that are in the arena are copied."""

    def __init__(self, execution: Execution, steps: Any, count: int) -> None:
        program = execution.program
        self.inputs = [torch.Size(program.shapes[name]) for name in program.inputs]
        shapes = [program.shapes[name] for name in program.outputs]
        # Templates of the outputs; they are never written, so they take no physical memory.
        self.templates = [empty_tensor(shape) for shape in shapes]
        self.copied = [
            (number, execution.arena.view(plain.buffer, shapes[number]))
            for number, plain in enumerate(execution.outputs)
            if plain.buffer
        ]
        self.execution = execution  # keeps the memory of the views and addresses alive
        self.pool, self.slots = execution.pool, execution.slots
        self.steps = steps  # keeps its address valid
        self.call = (ctypes.addressof(steps), count, ctypes.addressof(self.slots))

    def fits(self, given: Sequence[Any]) -> bool:
        """Return whether these are plain tensors that the kernels can read in place."""
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
                and not each.is_neg()  # memory then holds the opposite sign
            ):
                return False
        return True

    def __call__(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs for tensors that fit; one call at a time."""
        outputs = [torch.empty_like(each) for each in self.templates]
        for slot, tensor in enumerate((*given, *outputs)):
            self.slots[slot] = tensor.data_ptr() or refuse_no_storage(tensor)
        self.pool.run(*self.call)
        for number, view in self.copied:
            outputs[number].copy_(view)
        return outputs


def make_fast_path(executor: Executor) -> FastPath | None:
    """Return a fast path if the program runs in kernels alone and no output is an input."""
    execution = executor.execution if isinstance(executor, Runtime) else None
    if not isinstance(execution, Execution) or len(execution.segments) != 1:
        return None
    (segment,) = execution.segments
    is_given = any(0 <= plain.slot < len(execution.program.inputs) for plain in execution.outputs)
    return None if isinstance(segment, Operation) or is_given else FastPath(execution, *segment)
