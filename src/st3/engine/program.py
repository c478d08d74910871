"""A network as a list of steps: the translation's result and the runtime's input.

Values are named by strings. A program knows the shape of each value (batch included) and its steps in execution order;
a step reads earlier values and computes one value. After optimisation, batch norms are folded into layers, and
activations and residual additions are fused into the step before where possible.
All arrays are contiguous float32 copies: the model may change or be deleted.
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
    """An activation by name: relu, relu6, gelu, gelu_tanh, silu, hardswish, hardsigmoid, sigmoid, tanh."""

    name: str

    @property
    def is_never_negative(self) -> bool:
        return self.name in ("relu", "relu6", "sigmoid", "hardsigmoid")


@dataclass(frozen=True, kw_only=True)
class Step:
    """Computes the value `target` from the values `sources`; `name` is for the report."""

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
    """activation(x * scale + shift) per channel (axis 1): a batch norm that could not be folded into a layer."""

    scale: Floats
    shift: Floats
    activation: Activation | None = None


@dataclass(frozen=True, kw_only=True)
class Add(Step):
    """activation(a + b) of two values of the same shape."""

    activation: Activation | None = None


@dataclass(frozen=True, kw_only=True)
class Elementwise(Step):
    """An activation that could not be fused into another step."""

    activation: Activation


@dataclass(frozen=True, kw_only=True)
class Concat(Step):
    """The sources concatenated along the channels (axis 1)."""


@dataclass(frozen=True, kw_only=True)
class MaxPool(Step):
    """Max pooling; padding counts as minus infinity."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    ceil_mode: bool = False


@dataclass(frozen=True, kw_only=True)
class AveragePool(Step):
    """Average pooling."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    ceil_mode: bool = False
    count_padding: bool = True


@dataclass(frozen=True, kw_only=True)
class GlobalAverage(Step):
    """The mean over height and width: (n, c, h, w) to the target's shape, (n, c) or (n, c, 1, 1)."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveAverage(Step):
    """Adaptive average pooling to the target's height and width."""


@dataclass(frozen=True, kw_only=True)
class Reshape(Step):
    """The source in the target's shape, with elements in the same order: flatten, view, squeeze."""


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
