"""A network as a list of steps: the front end's result and the planner's input.

Values are named by strings. A program knows the shape of each value (batch included) and its steps in execution order;
a step reads earlier values and computes one value. A step says itself what the optimiser asks about its channels.
All arrays are contiguous float32 copies: the model may change or be deleted.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, ClassVar, Self, TypeAlias

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


@dataclass(frozen=True, kw_only=True)
class Layer(Activated):
    """activation(sums of products with the weight + bias [+ residual]); sources are (x,) or (x, residual)."""

    weight: Floats  # (out, in, ...)
    bias: Floats | None

    FLOW = Flow.MIXED

    def keep_channels(self, kept: Mask) -> Self:
        bias = None if self.bias is None else np.ascontiguousarray(self.bias[kept])
        return replace(self, weight=np.ascontiguousarray(self.weight[kept]), bias=bias)


@dataclass(frozen=True, kw_only=True)
class Conv(Layer):
    """A two-dimensional convolution; its weight is (out, in / groups, kernel height, kernel width)."""

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    AXIS = 1

    @property
    def is_depthwise(self) -> bool:
        return 1 < self.groups == len(self.weight) and self.weight.shape[1] == 1

    @property
    def flow(self) -> Flow:
        if self.is_depthwise:
            return Flow.APART
        return Flow.MIXED if self.groups == 1 else Flow.UNKNOWN

    @property
    def reads_padding(self) -> bool:
        return self.padding != (0, 0)

    def keep_channels(self, kept: Mask) -> Self:
        made = super().keep_channels(kept)
        return replace(made, groups=len(made.weight)) if self.is_depthwise else made


@dataclass(frozen=True, kw_only=True)
class Linear(Layer):
    """A matrix product over the last axis; its weight is (out, in)."""

    AXIS = -1


@dataclass(frozen=True, kw_only=True)
class Affine(Activated):
    """activation(x * scale + shift) per channel: a batch norm that could not be folded into a layer."""

    scale: Floats
    shift: Floats
    axis: int = 1

    FLOW = Flow.APART

    @property
    def channel_axis(self) -> int:
        return self.axis

    def keep_channels(self, kept: Mask) -> Self:
        return replace(self, scale=self.scale[kept], shift=self.shift[kept])


@dataclass(frozen=True, kw_only=True)
class Pairwise(Activated):
    """activation of a sum or product of two values; the first has the target's shape, the second may be broadcast."""

    FLOW = Flow.APART


@dataclass(frozen=True, kw_only=True)
class Add(Pairwise):
    """activation(a + b)."""


@dataclass(frozen=True, kw_only=True)
class Multiply(Pairwise):
    """activation(a * b)."""


@dataclass(frozen=True, kw_only=True)
class Elementwise(Step):
    """An activation that could not be fused into another step."""

    activation: Activation

    FLOW = Flow.APART


@dataclass(frozen=True, kw_only=True)
class Concat(Step):
    """The sources concatenated along the channels (axis 1)."""

    FLOW = Flow.JOINED
    AXIS = 1


@dataclass(frozen=True, kw_only=True)
class PerChannel(Step):
    """Pooled or repeated pixels of each channel of (n, c, h, w): a constant channel stays what it is."""

    FLOW = Flow.APART
    AXIS = 1


@dataclass(frozen=True, kw_only=True)
class MaxPool(PerChannel):
    """Max pooling; padding counts as minus infinity."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    ceil_mode: bool = False


@dataclass(frozen=True, kw_only=True)
class AveragePool(PerChannel):
    """Average pooling."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    ceil_mode: bool = False
    count_padding: bool = True

    @property
    def reads_padding(self) -> bool:
        return self.padding != (0, 0) or self.ceil_mode


@dataclass(frozen=True, kw_only=True)
class GlobalAverage(PerChannel):
    """The mean over height and width: (n, c, h, w) to the target's shape, (n, c) or (n, c, 1, 1)."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveAverage(PerChannel):
    """Adaptive average pooling to the target's height and width."""


@dataclass(frozen=True, kw_only=True)
class Upsample(PerChannel):
    """Every pixel repeated, to a target whose height and width are multiples of the source's."""


@dataclass(frozen=True, kw_only=True)
class Norm(Step):
    """(x - mean) / sqrt(variance + eps) * scale + shift, over the channels; not centred (RMS norm): mean 0."""

    scale: Floats | None
    shift: Floats | None
    eps: float
    axis: int = -1
    is_centred: bool = True

    @property
    def channel_axis(self) -> int:
        return self.axis


@dataclass(frozen=True, kw_only=True)
class GroupNorm(Step):
    """The norm over the pixels and channels of each group of channels of (n, c, h, w)."""

    scale: Floats | None
    shift: Floats | None
    eps: float
    groups: int

    AXIS = 1


@dataclass(frozen=True, kw_only=True)
class Select(Step):
    """The channels of these numbers, in this order: a slice, or a shuffle."""

    index: Ints
    axis: int = 1

    FLOW = Flow.SELECTED

    @property
    def channel_axis(self) -> int:
        return self.axis


@dataclass(frozen=True, kw_only=True)
class Reshape(Step):
    """The source in the target's shape, with elements in the same order: flatten, view, squeeze."""

    FLOW = Flow.RESHAPED


@dataclass(frozen=True, kw_only=True)
class Softmax(Step):
    """Softmax along one axis."""

    axis: int


@dataclass(frozen=True, kw_only=True)
class InTorch(Step):
    """A function of tensors that torch evaluates; `why` tells the report the reason."""

    function: Callable[..., Any]
    why: str


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
