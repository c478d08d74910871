"""Allocate every arena buffer and every kernel array separately, so that a sanitizer detects overruns.

Also a pytest plugin: `-p tests.engine.exact_blocks`.
"""

import ctypes
from typing import Any

import numpy as np
import torch

from st3.engine import execution, native
from st3.engine.memory import Buffer


def exact(count: int) -> np.ndarray:
    """Return an allocation of exactly `count` bytes that starts on a cache line; it is never freed."""
    address = ctypes.c_void_p()
    if ctypes.CDLL(None).posix_memalign(ctypes.byref(address), ctypes.c_size_t(64), ctypes.c_size_t(count)):
        raise MemoryError(count)
    block: ctypes.Array[ctypes.c_uint8] = (ctypes.c_uint8 * count).from_address(address.value or 0)
    made = np.ctypeslib.as_array(block)
    made[:] = 0
    return made


class Apart:
    """An arena whose buffers are separate allocations."""

    def __init__(self, kernels: native.Kernels, buffers: list[Buffer]) -> None:
        self.floats = 0
        self.blocks = {
            id(buffer): exact(4 * buffer.size).view(np.float32) for buffer in buffers if buffer.size
        }

    def address(self, buffer: Buffer) -> int:
        return int(self.blocks[id(buffer)].ctypes.data)

    @property
    def memory(self) -> "Apart":
        return self

    def fill_(self, value: float) -> None:
        for block in self.blocks.values():
            block[:] = value

    def view(self, buffer: Buffer, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.from_numpy(self.blocks[id(buffer)])[: int(np.prod(shape))].view(shape)


class Single:
    """A store whose arrays are separate allocations."""

    def __init__(self, kernels: native.Kernels) -> None:
        pass

    def keep(self, array: np.ndarray[Any, Any]) -> int:
        block = exact(max(1, array.nbytes))
        block[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return int(block.ctypes.data)


def use_exact_blocks() -> None:
    execution.Arena = Apart  # type: ignore[assignment, misc]
    native.Store = Single  # type: ignore[assignment, misc]


def pytest_configure() -> None:
    use_exact_blocks()
