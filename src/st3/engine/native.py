"""The compiled library: loading it, its kernels, memory for arrays that kernels read, sessions."""

import contextlib
import ctypes
import hashlib
import os
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import schema
from .build import LIBRARY, instruction_sets, is_sealed

if TYPE_CHECKING:
    from .plan.assemble import Plan

ENV_VAR = "ST3_KERNELS"  # path of the library, in place of the one in the package
UNUSABLE = (
    "the compiled kernels in {} are damaged or of another version of st3; run `python -m st3.engine.build`"
)


BAD_NUMBER = (
    "an input holds a number that is out of range: token ids must be at least 0 and below the size of the embedding, "
    "positions below its length and that of the cache"
)


class NativeError(RuntimeError):
    """The compiled kernels are missing or cannot be used."""


def library_path() -> Path:
    """Return the path of the library, whether or not it exists."""
    return Path(os.environ.get(ENV_VAR) or Path(__file__).parent / LIBRARY)


def is_built() -> bool:
    return library_path().is_file()


# name -> result and arguments, as library.h, verify.h and st3.h declare them
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "st3_schema": (c_char_p, []),
    "st3_kernels": (c_void_p, [c_char_p]),
    "st3_kernels_name": (c_char_p, [c_void_p]),
    "st3_kernels_lanes": (c_int32, [c_void_p]),
    "st3_kernels_variants": (POINTER(c_int32), [c_void_p, POINTER(c_int32)]),
    "st3_allocate": (c_void_p, [c_int64]),
    "st3_release": (None, [c_void_p]),
    "st3_trim": (None, []),
    "st3_session_new": (c_void_p, [c_void_p, c_void_p]),
    "st3_session_free": (None, [c_void_p]),
    "st3_session_arena": (c_void_p, [c_void_p]),
    "st3_session_run": (c_int32, [c_void_p, c_void_p, c_int32, c_int32]),
    "st3_session_time": (c_double, [c_void_p, c_void_p, c_void_p, c_int32]),
    "st3_verify": (c_int32, [c_void_p, c_void_p, c_int32, c_int32, c_char_p]),
    "st3_checksum": (c_uint64, [c_char_p, c_int64]),
    "st3_open": (c_void_p, [c_char_p, c_char_p, c_char_p]),
    "st3_close": (None, [c_void_p]),
    "st3_inputs": (c_void_p, [c_void_p, POINTER(c_int32)]),
    "st3_outputs": (c_void_p, [c_void_p, POINTER(c_int32)]),
    "st3_states": (c_void_p, [c_void_p, POINTER(c_int32)]),
    "st3_isa": (c_char_p, [c_void_p]),
    "st3_threads": (c_int32, [c_void_p]),
    "st3_start": (c_void_p, [c_void_p, c_int32, c_char_p]),
    "st3_run": (c_int32, [c_void_p, c_void_p, c_void_p, c_char_p]),
    "st3_state": (c_void_p, [c_void_p, c_int32]),
    "st3_reset": (None, [c_void_p]),
    "st3_stop": (None, [c_void_p]),
}


@cache
def load(path: Path) -> ctypes.CDLL:
    """Load the library after a check that it is complete and was built from the C sources of this package."""
    if not path.is_file():
        raise NativeError(
            f"the compiled kernels are missing: no file {path}; install a C compiler and run "
            "`python -m st3.engine.build`"
        )
    if not is_sealed(path.read_bytes()):
        raise NativeError(UNUSABLE.format(path))
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def library() -> ctypes.CDLL:
    """Return the library in use."""
    return load(library_path())


class Variant(NamedTuple):
    """A tile size that has a kernel."""

    rows: int
    columns: int
    step: int  # input columns from one output to the next; 0: any
    outputs: int  # per bundle
    number: int  # index in the table of its kind

    @property
    def vectors(self) -> int:
        return self.rows * self.columns


class Kernels:
    """The kernels for one instruction set."""

    def __init__(self, library: ctypes.CDLL, address: int) -> None:
        self.library, self.address = library, address
        self.name: str = library.st3_kernels_name(address).decode()
        self.lanes: int = library.st3_kernels_lanes(address)
        count = c_int32()
        numbers = library.st3_kernels_variants(address, byref(count))[: 5 * count.value]
        self.variants: dict[str, list[Variant]] = {}
        for high, wide, step, outputs, kind in zip(*[iter(numbers)] * 5, strict=True):
            known = self.variants.setdefault(schema.schema().kinds[kind].lower(), [])
            known.append(Variant(high, wide, step, outputs, len(known)))

    @cached_property
    def most_outputs(self) -> int:
        """The most outputs that a kernel computes at a time; it may read as many biases beyond the last output."""
        return max(each.outputs for some in self.variants.values() for each in some)


def kernels(name: str | None = None) -> Kernels:
    """Return the kernels for the instruction set `name`, by default the best that this processor supports."""
    loaded = library()
    address = loaded.st3_kernels(name.encode() if name else None)
    if not address:
        raise NativeError(f"no kernels for {name!r}: not compiled, or not supported by this processor")
    return Kernels(loaded, address)


def usable_instruction_sets() -> list[str]:
    """Return the instruction sets that the library was built for and this processor has, the best first."""
    loaded = library()
    return [name for name in instruction_sets() if loaded.st3_kernels(name.encode())]


def describe_library() -> str:
    """Say which instruction sets the library was built for and which one is used here, or why there is none."""
    try:
        used = kernels().name
    except NativeError as error:
        return f"not in use; {error}"
    return f"built for {', '.join(instruction_sets())}; uses {used} here"


class Memory:
    """A zeroed block of memory in huge pages."""

    def __init__(self, size: int) -> None:
        self.library, self.size = library(), size
        self.address: int = self.library.st3_allocate(size)
        if not self.address:
            raise MemoryError(f"could not allocate {size} bytes")

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self.library.st3_release(self.address)
            self.address = 0


def give_back_memory() -> None:
    """Give memory that was freed back to the system: compiling needs much more than the compiled model."""
    with contextlib.suppress(NativeError, OSError):  # no library: nothing to do
        library().st3_trim()


class Array(NamedTuple):
    """An array in a store."""

    address: int
    bytes: int


class Store:
    """Memory for the arrays that kernels read, one after another in huge pages; equal arrays are kept once."""

    CHUNK = 2 << 20

    def __init__(self) -> None:
        self.chunks, self.free, self.end = list[Memory](), 0, 0
        self.known: dict[bytes, Array] = {}

    def keep(self, array: npt.NDArray[Any]) -> Array:
        """Copy an array to the start of a cache line."""
        array = np.ascontiguousarray(array)
        key = hashlib.sha1(array.reshape(-1).view(np.uint8).data, usedforsecurity=False).digest()
        if key not in self.known:
            self.known[key] = self.copy(array)
        return self.known[key]

    def copy(self, array: npt.NDArray[Any]) -> Array:
        if self.free + array.nbytes > self.end:
            self.chunks.append(Memory(max(array.nbytes, self.CHUNK)))
            self.free = self.chunks[-1].address
            self.end = self.free + self.chunks[-1].size
        address = self.free
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
        self.free += -(-array.nbytes // 64) * 64
        return Array(address, array.nbytes)


class Session:
    """The memory and the threads in which a plan runs, one call at a time; threads sleep between calls."""

    def __init__(self, kernels: Kernels, plan: "Plan") -> None:
        self.library, self.plan = kernels.library, plan  # the plan keeps the arrays alive
        self.structure = plan.structure()
        self.handle = self.library.st3_session_new(kernels.address, ctypes.addressof(self.structure))
        if not self.handle:
            raise NativeError(
                f"could not start {plan.threads} threads with {4 * plan.scratch} bytes of scratch each and "
                f"{4 * plan.arena} bytes for values"
            )
        self.slots = (c_void_p * max(1, len(plan.slots)))()
        self.call = (self.handle, ctypes.addressof(self.slots))
        whole = (c_float * plan.arena).from_address(self.library.st3_session_arena(self.handle))
        with torch.inference_mode(False):  # a model compiled in inference mode may be called outside it
            self.arena: Tensor = torch.from_numpy(np.ctypeslib.as_array(whole))

    def run(self, first: int = 0, count: int = -1) -> None:
        """Run steps of the plan, by default all of them for the whole batch, on the tensors in `slots`."""
        fault = self.library.st3_session_run(*self.call, first, count)
        if fault == schema.number("BAD_NUMBER"):
            raise IndexError(BAD_NUMBER)
        if fault:
            raise NativeError(f"could not start {self.plan.threads} threads in a forked process")

    def time(self, plan: "Plan") -> float:
        """Return the milliseconds of another plan's steps in the memory of this session."""
        structure = plan.structure()
        taken: float = self.library.st3_session_time(*self._timed(structure), 1)
        if taken < 0:
            raise MemoryError("could not allocate memory for a plan")
        return taken / 1e6

    def _timed(self, structure: ctypes.Structure) -> Sequence[Any]:
        return self.handle, ctypes.addressof(structure), ctypes.addressof(self.slots)

    def __del__(self) -> None:
        if getattr(self, "handle", None):  # no names of modules here: they are gone when Python ends
            self.library.st3_session_free(self.handle)
            self.handle = None
