"""One way to compute a step, and how a convolution is cut for it."""

from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass
from typing import NamedTuple

from .planned import Binding


@dataclass(frozen=True)
class Alternative:
    """One way to compute a step: its name, a guess of its cycles, its structures, and floats of scratch per thread."""

    label: str
    cost: float
    make: Callable[[Binding], list[tuple[Structure, int]]]
    scratch: int
    then: str = ""  # the kernel of the second step, where two are one

    @property
    def kernel(self) -> str:
        return self.label.split()[0]


class Config(NamedTuple):
    """How a convolution is computed: the plane's cut, input channels in a block, outputs in a group, which kernel."""

    down: int
    across: int
    channels_per_block: int
    outputs_per_group: int
    kernel: str = "sparse"  # or "dense", "lanewise", "depthwise"

    @property
    def is_sparse(self) -> bool:
        return self.kernel == "sparse"

    @property
    def label(self) -> str:
        return f"{self.kernel} {tuple(self[:-1])}"
