"""A plan: structures, steps and arrays without an address in them, so that it can be shared and written to a file.

A planner collects operations, each with one way to assemble it or several alternatives.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from ctypes import Structure
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from .. import schema
from ..native import Array, Store
from ..program import Activation, Function, Shape, Step
from .values import Buffer, FieldArray, PlainArray

__all__ = ["Alternative", "Assembly", "Make", "Operation", "Plan", "Tunable", "clamp"]

ALIGNMENT = 16  # bytes of a structure


@dataclass(frozen=True)
class Plan:
    """What a session is made from; see FIELDS_Plan in c/plan.h."""

    steps: bytes
    nested: bytes
    structures: bytes
    constants: tuple[Array, ...]
    arena: int  # floats
    scratch: int  # floats per thread
    slots: tuple[int, ...]  # floats of each of the caller's tensors, for one part of a batch
    parts: int
    threads: int
    owner: Any = field(default=None, repr=False, compare=False)  # whatever the arrays' memory belongs to

    def structure(self) -> Structure:
        """Return the plan as C reads it."""
        constants = (schema.Constant * max(1, len(self.constants)))(*self.constants)
        slots = np.array(self.slots, np.int64)
        made: Structure = schema.Plan(
            steps=_address(self.steps),
            nested=_address(self.nested),
            structures=_address(self.structures),
            constants=ctypes.addressof(constants),
            slots=slots.ctypes.data,
            structure_bytes=len(self.structures),
            arena=self.arena,
            scratch=self.scratch,
            step_count=self._count(self.steps),
            nested_count=self._count(self.nested),
            constant_count=len(self.constants),
            slot_count=len(self.slots),
            parts=self.parts,
            threads=self.threads,
        )
        made.held = (self, constants, slots)  # what it points to lives as long as it does
        return made

    @property
    def constant_bytes(self) -> int:
        return sum(each.bytes for each in self.constants)

    @staticmethod
    def _count(steps: bytes) -> int:
        return len(steps) // ctypes.sizeof(schema.Step)


def _address(block: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(block), ctypes.c_void_p).value or 0


class Assembly:
    """Collects the structures, steps and arrays of a plan. What it returns are references, not addresses."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.structures = bytearray()
        self.steps: list[Any] = []
        self.nested: list[Any] = []
        self.constants: dict[Array, int] = {}

    def address(self, buffer: Buffer | None) -> int:
        """Return the reference of a buffer in the arena; offsets in bytes may be added to it."""
        return _reference("ARENA", 4 * buffer.offset) if buffer and buffer.size else 0

    def origin(self, array: FieldArray) -> int:
        """Return the reference of the first pixel of a field."""
        return self.address(array.buffer) + 4 * array.field.origin

    def keep(self, array: npt.NDArray[Any] | None) -> int:
        """Keep a copy of an array and return its reference; NULL if there is none."""
        if array is None:
            return 0
        number = self.constants.setdefault(self.store.keep(array), len(self.constants))
        return _reference("CONSTANT", number)

    def epilogue(self, activation: Activation | None, mask: npt.NDArray[Any] | None) -> Structure:
        """Return what follows a sum: an activation, and zeros outside the mask."""
        low, high, function = clamp(activation)
        made: Structure = schema.Epilogue(mask=self.keep(mask), low=low, high=high, function=function)
        return made

    def hold(self, structure: Structure) -> int:
        """Keep a structure that another one points to, and return its reference."""
        at = self._append(structure)
        self.nested.append(schema.Step(kind=schema.kind_of(structure), tasks=0, arguments=at))
        return _reference("STRUCTURE", at)

    def add_step(self, structure: Structure, tasks: int) -> None:
        at = self._append(structure)
        self.steps.append(schema.Step(kind=schema.kind_of(structure), tasks=tasks, arguments=at))

    def finish(
        self, arena: int = 0, scratch: int = 0, slots: Sequence[int] = (), parts: int = 1, threads: int = 1
    ) -> Plan:
        """Return the plan."""
        return Plan(
            steps=b"".join(map(bytes, self.steps)),
            nested=b"".join(map(bytes, self.nested)),
            structures=bytes(self.structures),
            constants=tuple(self.constants),
            arena=arena,
            scratch=scratch,
            slots=tuple(slots),
            parts=parts,
            threads=threads,
            owner=self.store,
        )

    def _append(self, structure: Structure) -> int:
        at = len(self.structures)
        self.structures += bytes(structure)
        self.structures += bytes(-len(self.structures) % ALIGNMENT)
        return at


def clamp(activation: Activation | None) -> tuple[float, float, int]:
    """Return the bounds of an activation that is a clamp, and the number of any other (0: none) with its parameter."""
    function = activation.function if activation else None
    if function is Function.RELU:
        return 0.0, float("inf"), 0
    if function is Function.RELU6:
        return 0.0, 6.0, 0
    name = function.name.lower() if function else "none"
    (bits,) = struct.unpack("<I", struct.pack("<f", activation.parameter if activation else 0.0))
    return -float("inf"), float("inf"), schema.schema().functions.index(name) | bits << 32


def _reference(region: str, number: int) -> int:
    return schema.number(region) << schema.number("REGION_SHIFT") | number


Make: TypeAlias = Callable[[Assembly], tuple[Structure, int]]  # structure and number of tasks


@dataclass(frozen=True)
class Alternative:
    """One way to compute a step: its label, estimated cycles, structures, and scratch floats per thread."""

    label: str
    cost: float
    make: Callable[[Assembly], list[tuple[Structure, int]]]
    scratch: int
    second_kernel: str = ""  # of the second step, if this computes two
    sample: Callable[[Assembly], list[tuple[Structure, int]]] | None = (
        None  # a part that is measured in its place
    )

    @property
    def kernel(self) -> str:
        return self.label.split()[0]


class Tunable(Protocol):
    """Offers alternatives. The signature is everything that a measurement of them depends on, as text."""

    @property
    def signature(self) -> str: ...

    def alternatives(self) -> list[Alternative]: ...


@dataclass
class Operation:
    """One call of a kernel or of torch."""

    name: str
    kernel: str
    reads: list[Buffer]
    writes: list[Buffer]
    make: Make | None = None
    scratch: int = 0  # floats per thread
    tune: Tunable | None = None  # in place of `make`
    torch: Callable[..., Tensor] | None = None
    torch_sources: list[tuple[PlainArray, Shape]] = field(default_factory=list)
    torch_target: tuple[Buffer, Shape] | None = None
    step: Step | None = None
    before: Step | None = None  # the step before it, if this operation computes both
