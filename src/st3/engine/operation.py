"""The operations that a planner collects; they are bound to addresses later."""

from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from .memory import Buffer
from .packing import Array
from .program import Shape, Step
from .values import PlainArray

__all__ = ["Binding", "Make", "Operation"]


@dataclass(frozen=True)
class Binding:
    """What an operation needs to build its structure; each function returns an address."""

    address: Callable[[Buffer | None], int]
    keep: Callable[[Array], int]  # copies an array into memory that outlives the call
    hold: Callable[[Structure], int]  # keeps alive a structure that another one points to


Make: TypeAlias = Callable[[Binding], tuple[Structure, int]]  # structure and number of tasks


@dataclass
class Operation:
    """One call of a kernel or of torch."""

    name: str
    kernel: str
    reads: list[Buffer]
    writes: list[Buffer]
    make: Make | None = None
    tune: Any = None  # what offers alternatives to choose from, in place of `make`
    torch: Callable[..., Tensor] | None = None
    torch_sources: list[tuple[PlainArray, Shape]] = field(default_factory=list)
    torch_target: tuple[Buffer, Shape] | None = None
    step: Step | None = None
    before: Step | None = None  # the step before it, if this operation computes both
    second_kernel: str = ""  # the kernel of `step`; `kernel` is then the one of `before`
