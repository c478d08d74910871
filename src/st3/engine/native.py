"""The Python interface of the compiled library: loading, memory, threads."""

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .build import LIBRARY, instruction_sets, is_sealed
from .plan import ALL, KernelTable

ENV_VAR = "ST3_KERNELS"  # path of the library, in place of the one in the package
UNUSABLE = (
    "the compiled kernels in {} are damaged or of another version of st3; run `python -m st3.engine.build`"
)


class NativeError(RuntimeError):
    """The compiled kernels are missing or cannot be used."""


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

    def __init__(self, library: ctypes.CDLL, table: Any) -> None:
        self.library, self.table = library, table
        self.name: str = table.contents.name.decode()
        self.lanes: int = table.contents.lanes
        numbers = table.contents.variants[: 5 * table.contents.variant_count]
        rows = [numbers[i : i + 5] for i in range(0, len(numbers), 5)]
        self.variants: dict[str, list[Variant]] = {"sparse": [], "dense": [], "depthwise": [], "lanewise": []}
        known = list(self.variants.values())
        for high, wide, step, outputs, kind in rows:
            known[kind].append(Variant(high, wide, step, outputs, len(known[kind])))


class Memory:
    """A zeroed block of memory in huge pages."""

    def __init__(self, kernels: Kernels, size: int) -> None:
        self.library, self.size = kernels.library, size
        self.address: int = self.library.st3_allocate(size)
        if not self.address:
            raise MemoryError(f"could not allocate {size} bytes")

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self.library.st3_release(self.address)
            self.address = 0


class Store:
    """Memory for the arrays that kernels read, one after another in huge pages."""

    CHUNK = 8 << 20

    def __init__(self, kernels: Kernels) -> None:
        self.kernels, self.chunks, self.free, self.end = kernels, list[Memory](), 0, 0

    def keep(self, array: npt.NDArray[Any]) -> int:
        """Copy an array to the start of a cache line and return its address."""
        array = np.ascontiguousarray(array)
        if self.free + array.nbytes > self.end:
            self.chunks.append(Memory(self.kernels, max(array.nbytes, self.CHUNK)))
            self.free = self.chunks[-1].address
            self.end = self.free + self.chunks[-1].size
        address = self.free
        ctypes.memmove(address, array.ctypes.data, array.nbytes)
        self.free += -(-array.nbytes // 64) * 64
        return address


class Pool:
    """A thread pool with a scratch buffer per thread; threads sleep between runs."""

    def __init__(self, kernels: Kernels, threads: int, scratch_floats: int) -> None:
        self.kernels, self.threads, self.scratch_floats = kernels, threads, scratch_floats
        self.call, self.table = kernels.library.st3_pool_run, ctypes.addressof(kernels.table.contents)
        self.start()

    def start(self) -> None:
        self.process = os.getpid()
        self.handle = self.kernels.library.st3_pool_new(self.threads, self.scratch_floats)
        if not self.handle:
            raise NativeError(
                f"could not start {self.threads} threads with {4 * self.scratch_floats} bytes of scratch each"
            )

    def run(self, steps: Any, count: int, slots: Any) -> None:
        """Run the steps. `steps` and `slots` are ctypes arrays, or their addresses, which are faster to pass."""
        if self.threads > 1 and self.process != os.getpid():
            self.start()  # a fork keeps the calling thread only
        self.call(self.handle, self.table, steps, count, slots)

    def time(self, steps: Any, count: int, slots: Any, repeats: int) -> float:
        """Return the shortest of `repeats` runs of the steps, in milliseconds."""
        call = self.kernels.library.st3_pool_time
        nanoseconds: float = call(self.handle, self.table, steps, count, slots, repeats)
        return nanoseconds / 1e6

    def __del__(self) -> None:
        if getattr(self, "handle", None):  # no names of modules here: they are gone when Python ends
            self.kernels.library.st3_pool_free(self.handle)
            self.handle = None


def library_path() -> Path:
    """Return the path of the library, whether or not it exists."""
    return Path(os.environ.get(ENV_VAR) or Path(__file__).parent / LIBRARY)


def is_built() -> bool:
    return library_path().is_file()


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
    library = ctypes.CDLL(str(path))
    library.st3_kernels.restype, library.st3_kernels.argtypes = POINTER(KernelTable), [c_char_p]
    library.st3_size.restype, library.st3_size.argtypes = c_int64, [c_int32]
    library.st3_pool_new.restype, library.st3_pool_new.argtypes = c_void_p, [c_int32, c_int64]
    library.st3_pool_free.restype, library.st3_pool_free.argtypes = None, [c_void_p]
    library.st3_allocate.restype, library.st3_allocate.argtypes = c_void_p, [c_int64]
    library.st3_release.restype, library.st3_release.argtypes = None, [c_void_p]
    common: list[Any] = [c_void_p, c_void_p, c_void_p]
    library.st3_pool_run.restype, library.st3_pool_run.argtypes = None, [*common, c_int32, c_void_p]
    library.st3_pool_time.restype, library.st3_pool_time.argtypes = (
        c_double,
        [*common, c_int32, c_void_p, c_int32],
    )
    sizes = [library.st3_size(number) for number in range(len(ALL))]
    if sizes != [ctypes.sizeof(each) for each in ALL]:
        raise NativeError(UNUSABLE.format(path))
    return library


def kernels(name: str | None = None) -> Kernels:
    """Return the kernels for the instruction set `name`, by default the best that this processor supports."""
    library = load(library_path())
    table = library.st3_kernels(name.encode() if name else None)
    if not table:
        raise NativeError(f"no kernels for {name!r}: not compiled, or not supported by this processor")
    return Kernels(library, table)


def describe_library() -> str:
    """Say which instruction sets the library was built for and which one is used here, or why there is none."""
    try:
        used = kernels().name
    except NativeError as error:
        return f"not in use; {error}"
    return f"built for {', '.join(instruction_sets())}; uses {used} here"
