"""What a planner collects: operations, not yet bound to addresses."""

from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from .memory import Buffer
from .packing import Array
from .program import Shape, Step
from .values import Plain

__all__ = ["Binding", "Make", "Operation"]


@dataclass(frozen=True)
class Binding:
    """What an operation needs to become a structure: addresses of buffers, and a place for its arrays."""

    address: Callable[[Buffer | None], int]
    keep: Callable[[Array], int]
    hold: Callable[[Structure], int]  # keeps a structure that another one points to


Make: TypeAlias = Callable[[Binding], tuple[Structure, int]]  # structure and number of tasks


@dataclass
class Operation:
    """One call of a kernel, or of torch."""

    name: str
    kernel: str
    reads: list[Buffer]
    writes: list[Buffer]
    make: Make | None = None
    tune: Any = None  # the alternatives, where there are some
    torch: Callable[..., Tensor] | None = None
    torch_sources: list[tuple[Plain, Shape]] = field(default_factory=list)
    torch_target: tuple[Buffer, Shape] | None = None
    step: Step | None = None
    before: Step | None = None  # the step that was fused into this one
    then: str = ""  # the kernel of `step`, where `kernel` is that of `before`
