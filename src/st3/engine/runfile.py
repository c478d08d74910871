"""Write plans to an .st3run file, which `load` and C run without the model; c/model.h states what is in the file."""

import ctypes
import hashlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..atomic import write_file
from . import native, schema
from .plan.assemble import Plan
from .plan.make import Planned
from .program import Shape

__all__ = ["Tensor", "write_run_file"]

LONGEST_NAME = 96  # bytes


class Tensor(NamedTuple):
    """An input or an output of a file; always float32."""

    name: str
    shape: Shape


def write_run_file(
    path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor], plans: Sequence[Planned]
) -> None:
    """Write plans of one program, in the order of preference; each is for another instruction set."""
    content = _Content()
    header = schema.FileHeader(
        magic=schema.number("FILE_MAGIC"),
        version=schema.number("FILE_VERSION"),
        schema=checksum(native.library().st3_schema()),
        inputs=len(inputs),
        outputs=len(outputs),
        plan_count=len(plans),
    )
    content.append(bytes(header))
    header.writer = content.text(f"st3 {_version()}")
    header.tensors = content.append(b"".join([content.tensor(each) for each in (*inputs, *outputs)]))
    header.plans = content.append(b"".join([content.plan(each) for each in plans]))
    content.append_arrays()
    header.size = len(content.bytes)
    content.bytes[: ctypes.sizeof(header)] = bytes(header)
    header.checksum = checksum(bytes(content.bytes[schema.number("FILE_SEALED") :]))
    content.bytes[: ctypes.sizeof(header)] = bytes(header)
    write_file(path, lambda file: file.write(content.bytes))


def checksum(content: bytes) -> int:
    """Return the CRC-64/XZ of some bytes, as the signed number that a header holds."""
    found: int = native.library().st3_checksum(content, len(content))
    return ctypes.c_int64(found).value


def _version() -> str:
    version: str = importlib.import_module(__name__.partition(".")[0]).__version__
    return version


class _Content:
    """The bytes of a file; parts are appended and their offsets returned."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.tables: list[tuple[int, Plan]] = []  # of constants, to be filled in when the arrays have offsets

    def append(self, part: bytes, alignment: int = 8) -> int:
        self.bytes += bytes(-len(self.bytes) % alignment)
        self.bytes += part
        return len(self.bytes) - len(part)

    def text(self, text: str) -> int:
        printable = "".join(letter if letter.isprintable() else "?" for letter in text)
        return self.append(printable.encode()[:LONGEST_NAME].decode(errors="ignore").encode() + b"\0", 1)

    def tensor(self, tensor: Tensor) -> bytes:
        shape = (ctypes.c_int64 * len(tensor.shape))(*tensor.shape)
        name = self.text(tensor.name)
        return bytes(schema.FileTensor(name=name, shape=self.append(bytes(shape)), dims=len(tensor.shape)))

    def plan(self, planned: Planned) -> bytes:
        plan, kernels = planned.plan, planned.kernels
        stored = plan.structure()  # offsets replace its addresses
        stored.steps, stored.nested = self.append(plan.steps), self.append(plan.nested)
        stored.structures = self.append(plan.structures, schema.number("FILE_ALIGNMENT"))
        stored.slots = self.append(bytes((ctypes.c_int64 * len(plan.slots))(*plan.slots)))
        stored.constants = self.append(bytes(ctypes.sizeof(schema.Constant) * len(plan.constants)))
        self.tables.append((stored.constants, plan))
        return bytes(schema.FilePlan(isa=self.text(kernels.name), variants=_variants(kernels), plan=stored))

    def append_arrays(self) -> None:
        """Append the arrays of all plans, equal ones once, and fill in the tables of constants."""
        known: dict[bytes, int] = {}
        for table, plan in self.tables:
            found = []
            for array in plan.constants:
                content = ctypes.string_at(array.address, array.bytes)
                key = hashlib.sha256(content).digest()
                if key not in known:
                    known[key] = self.append(content, schema.number("FILE_ALIGNMENT"))
                found.append(schema.Constant(known[key], array.bytes))
            filled = b"".join(map(bytes, found))
            self.bytes[table : table + len(filled)] = filled


def _variants(kernels: native.Kernels) -> int:
    """Return the checksum of the kernels' tile sizes: a plan refers to them by number."""
    count = ctypes.c_int32()
    numbers: Any = kernels.library.st3_kernels_variants(kernels.address, ctypes.byref(count))
    return checksum(ctypes.string_at(numbers, 20 * count.value))
