"""A network as a list of steps: what the graph reader writes and a runtime executes.

Values are named by strings. The program knows the shape of each (batch included) and the steps in an order that
can be executed; a step reads values made before it and makes one value. Batch norm is folded away, dropout is gone,
activations and residual additions sit in the step that makes their input, where that is possible.
All arrays are float32, contiguous, and belong to the program: the model may change or go away.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Activation:
    """A function by its name: relu, relu6, gelu, gelu_tanh, silu, hardswish, hardsigmoid, sigmoid, tanh."""

    name: str

    @property
    def is_never_negative(self) -> bool:
        return self.name in ("relu", "relu6", "sigmoid", "hardsigmoid")


@dataclass(frozen=True, kw_only=True)
class Step:
    """Makes the value `target` from the values `sources`; `name` is what a report calls it."""

    name: str
    sources: tuple[str, ...]
    target: str


@dataclass(frozen=True, kw_only=True)
class Conv(Step):
    """activation(conv2d(x) + bias [+ residual]); sources are (x,) or (x, residual)."""

    weight: Floats  # (out, in / groups, kernel height, kernel width)
    bias: Floats | None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    activation: Activation | None = None


@dataclass(frozen=True, kw_only=True)
class Linear(Step):
    """activation(x @ weight.T + bias [+ residual]) over the last axis; sources are (x,) or (x, residual)."""

    weight: Floats  # (out, in)
    bias: Floats | None
    activation: Activation | None = None


@dataclass(frozen=True, kw_only=True)
class Affine(Step):
    """activation(x * scale + shift), one pair per channel (axis 1): a batch norm that no convolution could take."""

    scale: Floats
    shift: Floats
    activation: Activation | None = None


@dataclass(frozen=True, kw_only=True)
class Add(Step):
    """activation(a + b) of two values of the same shape."""

    activation: Activation | None = None


@dataclass(frozen=True, kw_only=True)
class Elementwise(Step):
    """One activation by itself."""

    activation: Activation


@dataclass(frozen=True, kw_only=True)
class Concat(Step):
    """The sources one after the other along the channels (axis 1)."""


@dataclass(frozen=True, kw_only=True)
class MaxPool(Step):
    """The largest value of each window; padding counts as minus infinity."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    ceil_mode: bool = False


@dataclass(frozen=True, kw_only=True)
class AveragePool(Step):
    """The mean of each window."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    ceil_mode: bool = False
    count_padding: bool = True


@dataclass(frozen=True, kw_only=True)
class GlobalAverage(Step):
    """The mean over height and width: (n, c, h, w) to (n, c) or (n, c, 1, 1), as the target's shape says."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveAverage(Step):
    """Adaptive average pooling to the target's height and width."""


@dataclass(frozen=True, kw_only=True)
class Reshape(Step):
    """The same numbers, in the same order, in the target's shape: flatten, view, squeeze."""


@dataclass(frozen=True, kw_only=True)
class Softmax(Step):
    """Softmax along one axis."""

    axis: int


@dataclass(frozen=True, kw_only=True)
class InTorch(Step):
    """Anything else: a function of torch tensors that torch itself evaluates. `why` is for the report."""

    function: Callable[..., Any]
    why: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """The steps, the shape of every value, and which values come in and go out."""

    steps: tuple[Step, ...]
    shapes: dict[str, Shape] = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def readers(self, value: str) -> tuple[Step, ...]:
        """The steps that read a value."""
        return tuple(step for step in self.steps if value in step.sources)
