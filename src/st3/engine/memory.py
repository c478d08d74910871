"""Where values live: buffers of the arena, shared by values that are never needed at the same time."""

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
SLACK = 64  # floats behind the last buffer


@dataclass(eq=False)
class Buffer:
    """Some floats of the arena, needed from one step to another."""

    size: int
    first: int = -1
    last: int = -1
    offset: int = -1

    def used_at(self, step: int) -> None:
        self.first = step if self.first < 0 else min(self.first, step)
        self.last = max(self.last, step)


class Arena:
    """One block of memory for all buffers."""

    def __init__(self, kernels: Kernels, buffers: Iterable[Buffer]) -> None:
        self.floats = place(list(buffers)) + SLACK
        self.block = Memory(kernels, 4 * self.floats)
        whole = (ctypes.c_float * self.floats).from_address(self.block.address)
        with torch.inference_mode(False):  # a model compiled in that mode may be called outside of it
            self.memory = torch.from_numpy(np.ctypeslib.as_array(whole))

    def address(self, buffer: Buffer) -> int:
        return self.block.address + 4 * buffer.offset

    def view(self, buffer: Buffer, shape: tuple[int, ...]) -> Tensor:
        return self.memory[buffer.offset : buffer.offset + math.prod(shape)].view(shape)


def fresh(shape: tuple[int, ...]) -> Tensor:
    """Return a tensor for a kernel to read or write: what it is must not depend on torch's default type and device."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def no_address(tensor: Tensor) -> NoReturn:
    """Refuse a tensor whose `data_ptr()` is 0: kernels would read and write there."""
    raise ValueError(
        f"a tensor of shape {tuple(tensor.shape)} has no numbers in memory (it was freed, or stands in for one "
        "while torch traces): a compiled model computes with real ones"
    )


def place(buffers: list[Buffer]) -> int:
    """Give every buffer an offset, large ones first, each at the lowest free place; return the size needed."""
    placed: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda each: -each.size):
        rivals = [other for other in placed if other.first <= buffer.last and buffer.first <= other.last]
        offset = 0
        for other in sorted(rivals, key=lambda each: each.offset):
            if offset + buffer.size <= other.offset:
                break
            offset = max(offset, -(-(other.offset + other.size) // ALIGNMENT) * ALIGNMENT)
        buffer.offset = offset
        placed.append(buffer)
    return max((each.offset + each.size for each in placed), default=0)
