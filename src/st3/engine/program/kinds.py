"""The kinds of steps. All arrays are contiguous float32 copies: the model may change or be deleted."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from .program import Activated, Activation, Floats, Flow, Ints, Mask, Pair, Shape, Step, Windows


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

    @property
    def windows(self) -> Windows:
        high, wide = self.weight.shape[2:]
        return Windows((high, wide), self.stride, self.padding, self.dilation)

    def needs_zeros_outside(self, source: str) -> bool:
        return source == self.sources[0] and not self.windows.is_pointwise

    def keep_channels(self, kept: Mask) -> Self:
        made = super().keep_channels(kept)
        return replace(made, groups=len(made.weight)) if self.is_depthwise else made


@dataclass(frozen=True, kw_only=True)
class Linear(Layer):
    """A matrix product over the last axis; its weight is (out, in)."""

    AXIS = -1


@dataclass(frozen=True)
class Quantum:
    """How bytes stand for numbers: number = scale * (byte - zero).

    A value of bytes has a quarter of the channels in a program: a word of 32 bits holds four adjacent ones.
    """

    scale: float
    zero: int


@dataclass(frozen=True, kw_only=True)
class Quantised(Layer):
    """A layer whose source is bytes and whose weight is int8; output i is multiplied by weight_scale[i].

    Target and residual are bytes, or numbers if target_quantum is None.
    """

    weight_scale: Floats
    source_quantum: Quantum
    residual_quantum: Quantum | None
    target_quantum: Quantum | None


@dataclass(frozen=True, kw_only=True)
class QuantisedConv(Quantised, Conv):
    """A convolution of bytes."""


@dataclass(frozen=True, kw_only=True)
class QuantisedLinear(Quantised, Linear):
    """A matrix product of bytes."""


@dataclass(frozen=True, kw_only=True)
class Conversion(Step):
    """Numbers as bytes, or bytes as numbers; `axis` is that of the channels."""

    quantum: Quantum
    axis: int

    IS_PIXELWISE = True

    @property
    def channel_axis(self) -> int:
        return self.axis


@dataclass(frozen=True, kw_only=True)
class Quantise(Conversion):
    """Numbers as bytes."""


@dataclass(frozen=True, kw_only=True)
class Dequantise(Conversion):
    """Bytes as numbers."""


@dataclass(frozen=True, kw_only=True)
class Affine(Activated):
    """activation(x * scale + shift) per channel: a batch norm that could not be folded into a layer."""

    scale: Floats
    shift: Floats
    axis: int = 1

    FLOW = Flow.APART
    IS_PIXELWISE = True

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

    IS_PIXELWISE = True


@dataclass(frozen=True, kw_only=True)
class Multiply(Pairwise):
    """activation(a * b)."""


@dataclass(frozen=True, kw_only=True)
class Elementwise(Step):
    """An activation that could not be fused into another step."""

    activation: Activation

    FLOW = Flow.APART
    IS_PIXELWISE = True


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
    has_bytes: bool = False  # of bytes, whose zero is 0

    OUTSIDE = -float("inf")

    @property
    def windows(self) -> Windows:
        return Windows(self.kernel, self.stride, self.padding, self.dilation)


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

    @property
    def windows(self) -> Windows:
        return Windows(self.kernel, self.stride, self.padding, (1, 1))


@dataclass(frozen=True, kw_only=True)
class GlobalAverage(PerChannel):
    """The mean over height and width: (n, c, h, w) to the target's shape, (n, c) or (n, c, 1, 1)."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveAverage(PerChannel):
    """Adaptive average pooling to the target's height and width."""


@dataclass(frozen=True, kw_only=True)
class Resample(PerChannel):
    """rows @ x @ columns.T of every channel: up-sampling, or pooling over windows of different sizes.

    Each row of the two matrices has few numbers that are not zero; their sum is one.
    """

    rows: Floats  # (height of the target, height of the source)
    columns: Floats


def taps_of(matrix: Floats) -> tuple[Ints, Floats]:
    """Return the columns of the non-zero numbers of each row, and these numbers; -1 and 0 where a row has fewer.

    >>> taps_of(np.array([[0, 0.5, 0.5], [0, 0, 1.0]], np.float32))[0].tolist()
    [[1, 2], [2, -1]]
    """
    most = np.count_nonzero(matrix, axis=1).max()
    columns = np.argsort(matrix == 0, axis=1, kind="stable")[:, :most]
    numbers = np.take_along_axis(matrix, columns, axis=1)
    return np.where(numbers == 0, -1, columns).astype(np.int32), numbers


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


@dataclass(frozen=True)
class View:
    """Some elements of a value, as torch would return them without a copy; offset and strides count elements."""

    shape: Shape
    strides: Shape
    offset: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether these are adjacent elements in the same order, from the first one on."""
        size, expected = 1, []
        for side in reversed(self.shape):
            expected.append(size)
            size *= side
        in_order = zip(self.shape, self.strides, reversed(expected), strict=True)
        return self.offset == 0 and all(have == want for side, have, want in in_order if side > 1)


@dataclass(frozen=True, kw_only=True)
class Attention(Step):
    """Values weighted by the softmax of scale * (query · key) + mask; its target is (images, rows, heads, columns).

    Sources are those of the queries (images, heads, rows, columns), keys and values, and perhaps one more: a `mask`
    (images, heads, rows, places) that is added, or `until`, int64 numbers (images, rows): the last place that each row
    sees. Adjacent heads may share keys and values.
    """

    query: View
    keys: View
    values: View
    mask: View | None = None
    until: View | None = None
    scale: float
    is_causal: bool = False


@dataclass(frozen=True, kw_only=True)
class Lookup(Step):
    """Rows of a table by their numbers; the source holds int64 numbers."""

    table: Floats


@dataclass(frozen=True, kw_only=True)
class Place(Step):
    """The first source with rows of the second in some places of an axis; the third holds their int64 numbers.

    With `wraps`, negative numbers count from the end.
    """

    rows: View
    axis: int
    wraps: bool = False


@dataclass(frozen=True, kw_only=True)
class InTorch(Step):
    """A function of tensors that torch evaluates; `why` tells the report the reason."""

    function: Callable[..., Any]
    why: str
