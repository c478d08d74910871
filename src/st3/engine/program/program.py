"""A program, and what every step of it is: sources, a target, and what the optimiser asks about its channels."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution or a pooling."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.padding == (0, 0)

    def reach_outside(self, source: Shape, target: Shape) -> bool:
        """Whether some window reaches beyond the image."""
        ends = zip(source[2:], target[2:], self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return any(p > 0 or (out - 1) * s + (k - 1) * d - p >= size for size, out, k, s, p, d in ends)


@dataclass(frozen=True, kw_only=True)
class Step:
    """Computes the value `target` from the values `sources`; `name` is for the report."""

    name: str
    sources: tuple[str, ...]
    target: str

    FLOW: ClassVar[Flow] = Flow.UNKNOWN
    AXIS: ClassVar[int | None] = None
    OUTSIDE: ClassVar[float] = 0.0  # what its windows must read outside the image
    IS_PIXELWISE: ClassVar[bool] = False  # it zeroes the pixels outside the image itself

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

    @property
    def windows(self) -> Windows | None:
        """The windows of its first source that it reads, if it reads windows."""
        return None

    def needs_zeros_outside(self, source: str) -> bool:
        """Whether it reads pixels of a source outside the image, which must then be zero."""
        return not self.IS_PIXELWISE

    def keep_channels(self, kept: Mask) -> Self:
        """Return the step without some channels of its target."""
        return self


@dataclass(frozen=True, kw_only=True)
class Activated(Step):
    """A step whose result may go through an activation."""

    activation: Activation | None = None


@dataclass(frozen=True, kw_only=True)
class Program:
    """The steps, the shape of every value, and the names of the inputs and outputs."""

    steps: tuple[Step, ...]
    shapes: dict[str, Shape] = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def readers(self, value: str) -> tuple[Step, ...]:
        """Return the steps that read a value."""
        return tuple(step for step in self.steps if value in step.sources)

    def count_reads(self) -> Counter[str]:
        """Return how often each value is read, by steps and as an output."""
        return Counter([*(source for step in self for source in step.sources), *self.outputs])

    def with_steps(self, steps: Sequence[Step]) -> "Program":
        """Return the program with these steps, and the shapes of their values only."""
        made = {*self.inputs, *(step.target for step in steps)}
        shapes = {name: shape for name, shape in self.shapes.items() if name in made}
        return replace(self, steps=tuple(steps), shapes=shapes)

    def without_unread_steps(self) -> "Program":
        """Return the program without steps whose value is never read."""
        needed, steps = set(self.outputs), []
        for step in reversed(self.steps):
            if step.target in needed:
                needed.update(step.sources)
                steps.append(step)
        return self.with_steps(steps[::-1])
