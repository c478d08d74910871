"""The alternatives for computing a step, and the configuration of a convolution kernel."""

from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass
from typing import NamedTuple

from .operation import Binding


@dataclass(frozen=True)
class Alternative:
    """One way to compute a step: its label, estimated cycles, structures, and scratch floats per thread."""

    label: str
    cost: float
    make: Callable[[Binding], list[tuple[Structure, int]]]
    scratch: int
    second_kernel: str = ""  # of the second step, if this computes two

    @property
    def kernel(self) -> str:
        return self.label.split()[0]


class Config(NamedTuple):
    """How a convolution is computed: tiles per plane, input channels per block, outputs per group, kernel."""

    down: int  # tiles from top to bottom
    across: int  # tiles from left to right
    channels_per_block: int
    outputs_per_group: int
    kernel: str = "sparse"  # or "dense", "lanewise", "depthwise"

    @property
    def is_sparse(self) -> bool:
        return self.kernel == "sparse"

    @property
    def label(self) -> str:
        return f"{self.kernel} {tuple(self[:-1])}"
