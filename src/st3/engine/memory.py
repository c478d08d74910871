"""The arena: one block of memory whose buffers overlap where their values are never needed at the same time."""

import ctypes
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from .native import Kernels, Memory

ALIGNMENT = 16  # floats: a cache line
SLACK = 64  # floats after the last buffer


@dataclass(eq=False)
class Buffer:
    """A range of floats in the arena, needed from operation `first` to operation `last`."""

    size: int
    first: int = -1
    last: int = -1
    offset: int = -1

    def mark_used(self, step: int) -> None:
        self.first = step if self.first < 0 else min(self.first, step)
        self.last = max(self.last, step)


class Arena:
    """One block of memory for all buffers."""

    def __init__(self, kernels: Kernels, buffers: Iterable[Buffer]) -> None:
        self.floats = assign_offsets(list(buffers)) + SLACK
        self.block = Memory(kernels, 4 * self.floats)
        whole = (ctypes.c_float * self.floats).from_address(self.block.address)
        with torch.inference_mode(False):  # a model compiled in inference mode may be called outside it
            self.memory = torch.from_numpy(np.ctypeslib.as_array(whole))

    def address(self, buffer: Buffer) -> int:
        return self.block.address + 4 * buffer.offset

    def view(self, buffer: Buffer, shape: tuple[int, ...]) -> Tensor:
        return self.memory[buffer.offset : buffer.offset + math.prod(shape)].view(shape)


def empty_tensor(shape: tuple[int, ...]) -> Tensor:
    """Return an uninitialised float32 CPU tensor, whatever torch's default dtype and device are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def refuse_no_storage(tensor: Tensor) -> NoReturn:
    """Raise for a tensor whose `data_ptr()` is 0: kernels would read and write at that address."""
    raise ValueError(
        f"a tensor of shape {tuple(tensor.shape)} has no data in memory (it was freed, or it is a fake tensor of "
        "torch's tracer): call a compiled model with real tensors"
    )


def assign_offsets(buffers: list[Buffer]) -> int:
    """Give every buffer the lowest free offset, largest buffers first; return the floats needed."""
    placed: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda each: -each.size):
        overlapping = [other for other in placed if other.first <= buffer.last and buffer.first <= other.last]
        offset = 0
        for other in sorted(overlapping, key=lambda each: each.offset):
            if offset + buffer.size <= other.offset:
                break
            offset = max(offset, -(-(other.offset + other.size) // ALIGNMENT) * ALIGNMENT)
        buffer.offset = offset
        placed.append(buffer)
    return max((each.offset + each.size for each in placed), default=0)
