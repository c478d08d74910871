"""What a planner collects: operations, each with one way to compute it or several alternatives."""

from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from torch import Tensor

from ..program import Shape, Step
from .assemble import Assembly
from .memory import Buffer
from .values import PlainArray

__all__ = ["Alternative", "Make", "Operation", "Tunable"]

Make: TypeAlias = Callable[[Assembly], tuple[Structure, int]]  # structure and number of tasks


@dataclass(frozen=True)
class Alternative:
    """One way to compute a step: its label, estimated cycles, structures, and scratch floats per thread."""

    label: str
    cost: float
    make: Callable[[Assembly], list[tuple[Structure, int]]]
    scratch: int
    second_kernel: str = ""  # of the second step, if this computes two

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
    tune: Tunable | None = None  # in place of `make`
    torch: Callable[..., Tensor] | None = None
    torch_sources: list[tuple[PlainArray, Shape]] = field(default_factory=list)
    torch_target: tuple[Buffer, Shape] | None = None
    step: Step | None = None
    before: Step | None = None  # the step before it, if this operation computes both
