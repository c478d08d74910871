"""Keep buffers and kernel arrays apart from each other, so that the address sanitizer detects overruns.

Every array is an allocation of its own. Buffers of the arena do not overlap, and the memory between them is forbidden.
Also a pytest plugin: `-p tests.engine.exact_blocks`.
"""

import ctypes
from itertools import pairwise
from typing import Any

import numpy as np

from st3.engine import native
from st3.engine.plan import make
from st3.engine.plan.values import Buffer

GAP = 64  # floats between two buffers
PLACES: dict[int, list[tuple[int, int]]] = {}  # floats of an arena -> where its buffers begin and end


def exact(count: int) -> np.ndarray:
    """Return an allocation of exactly `count` bytes that starts on a cache line; it is never freed."""
    address = ctypes.c_void_p()
    if ctypes.CDLL(None).posix_memalign(ctypes.byref(address), ctypes.c_size_t(64), ctypes.c_size_t(count)):
        raise MemoryError(count)
    block: ctypes.Array[ctypes.c_uint8] = (ctypes.c_uint8 * count).from_address(address.value or 0)
    made = np.ctypeslib.as_array(block)
    made[:] = 0
    return made


def copy_exactly(store: native.Store, array: np.ndarray[Any, Any]) -> native.Array:
    block = exact(max(1, array.nbytes))
    block[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return native.Array(int(block.ctypes.data), array.nbytes)


def place_apart(buffers: list[Buffer]) -> int:
    """Give every buffer a place of its own; no two arenas have the same size."""
    end, places = GAP, []
    for buffer in buffers:
        buffer.offset = end
        places.append((end, end + buffer.size))
        end = -(-(end + buffer.size) // 16) * 16 + GAP
    end += 16 * len(PLACES)
    PLACES[end + make.SLACK] = places
    return end


class Guarded(native.Session):
    """A session whose arena may be touched inside its buffers only."""

    def __init__(self, kernels: native.Kernels, plan: Any) -> None:
        super().__init__(kernels, plan)
        forbid = getattr(ctypes.CDLL(None), "__asan_poison_memory_region", None)
        places = PLACES.get(plan.arena)
        if forbid is None or places is None:
            return
        edges = [(0, 0), *sorted(places), (plan.arena, plan.arena)]
        for (_, end), (begin, _) in pairwise(edges):
            if begin > end:
                forbid(ctypes.c_void_p(self.arena.data_ptr() + 4 * end), ctypes.c_size_t(4 * (begin - end)))


def use_exact_blocks() -> None:
    make.assign_offsets = place_apart
    native.Session = Guarded  # type: ignore[misc]
    native.Store.copy = copy_exactly  # type: ignore[method-assign]


def pytest_configure() -> None:
    use_exact_blocks()
