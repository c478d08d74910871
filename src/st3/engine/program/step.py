"""What every step is: sources, a target, and what the optimiser asks about its channels."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Shape: TypeAlias = tuple[int, ...]
Pair: TypeAlias = tuple[int, int]


class Function(Enum):
    """What an activation computes."""

    RELU = auto()
    RELU6 = auto()
    GELU = auto()
    GELU_TANH = auto()
    SILU = auto()
    HARDSWISH = auto()
    HARDSIGMOID = auto()
    SIGMOID = auto()
    TANH = auto()
    LEAKY_RELU = auto()
    ELU = auto()


@dataclass(frozen=True)
class Activation:
    """A function of each number; the parameter is the slope of LEAKY_RELU below 0, the alpha of ELU."""

    function: Function
    parameter: float = 0.0

    @property
    def is_never_negative(self) -> bool:
        return self.function in (Function.RELU, Function.RELU6, Function.SIGMOID, Function.HARDSIGMOID)


class Flow(Enum):
    """How the channels of a step's target depend on those of its sources."""

    UNKNOWN = auto()  # in any way: all channels are needed
    APART = auto()  # channel i on channel i of every source
    MIXED = (
        auto()
    )  # every channel on all channels of the first source, by its weight, and on channel i of the residual
    JOINED = auto()  # the channels of the sources follow one another
    SELECTED = auto()  # channel i on channel index[i]
    RESHAPED = auto()  # as the shapes say


@dataclass(frozen=True, kw_only=True)
class Step:
    """Computes the value `target` from the values `sources`; `name` is for the report."""

    name: str
    sources: tuple[str, ...]
    target: str

    FLOW: ClassVar[Flow] = Flow.UNKNOWN
    AXIS: ClassVar[int | None] = None

    @property
    def flow(self) -> Flow:
        return self.FLOW

    @property
    def channel_axis(self) -> int | None:
        """The axis of the channels; None if it is that of the sources."""
        return self.AXIS

    @property
    def reads_padding(self) -> bool:
        """Whether it reads zeros outside the image: then of all constant channels, only zeros stay constant."""
        return False

    def keep_channels(self, kept: Mask) -> Self:
        """Return the step without some channels of its target."""
        return self


@dataclass(frozen=True, kw_only=True)
class Activated(Step):
    """A step whose result may go through an activation."""

    activation: Activation | None = None
