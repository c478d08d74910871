"""The reference interpreter: executes a program step by step in torch.

Every kernel is tested against it, and it runs where no library was built.
"""

from collections.abc import Callable, Mapping
from functools import singledispatch

import torch
from torch import Tensor
from torch.nn import functional as F

from .program import (
    Activation,
    AdaptiveAverage,
    Add,
    Affine,
    AveragePool,
    Concat,
    Conv,
    Elementwise,
    Floats,
    Function,
    GlobalAverage,
    InTorch,
    Linear,
    MaxPool,
    Program,
    Reshape,
    Shape,
    Softmax,
    Step,
)

ACTIVATIONS: Mapping[Function, Callable[[Tensor], Tensor]] = {
    Function.RELU: F.relu,
    Function.RELU6: F.relu6,
    Function.GELU: F.gelu,
    Function.GELU_TANH: lambda x: F.gelu(x, approximate="tanh"),
    Function.SILU: F.silu,
    Function.HARDSWISH: F.hardswish,
    Function.HARDSIGMOID: F.hardsigmoid,
    Function.SIGMOID: torch.sigmoid,
    Function.TANH: torch.tanh,
}


def interpret(program: Program, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the program's outputs for these inputs."""
    values = dict(zip(program.inputs, inputs, strict=True))
    with torch.no_grad():
        for step in program:
            sources = [values[name] for name in step.sources]
            values[step.target] = evaluate(step, sources, program.shapes[step.target])
    return tuple(values[name] for name in program.outputs)


def activate(x: Tensor, activation: Activation | None) -> Tensor:
    """Apply an activation, if there is one."""
    return x if activation is None else ACTIVATIONS[activation.function](x)


def tensor(array: Floats | None) -> Tensor | None:
    """Return the array as a tensor that shares its memory."""
    return None if array is None else torch.from_numpy(array)


@singledispatch
def evaluate(step: Step, sources: list[Tensor], shape: Shape) -> Tensor:
    """Return the result of a step for its sources; `shape` is the target's."""
    raise TypeError(
        f"step {step.name!r} is a {type(step).__name__}; the reference interpreter does not know this kind"
    )


@evaluate.register
def _(step: Conv, sources: list[Tensor], shape: Shape) -> Tensor:
    x, *residual = sources
    weight = torch.from_numpy(step.weight)
    y = F.conv2d(x, weight, tensor(step.bias), step.stride, step.padding, step.dilation, step.groups)
    return activate(sum(residual, y), step.activation)


@evaluate.register
def _(step: Linear, sources: list[Tensor], shape: Shape) -> Tensor:
    x, *residual = sources
    y = F.linear(x, torch.from_numpy(step.weight), tensor(step.bias))
    return activate(sum(residual, y), step.activation)


@evaluate.register
def _(step: Affine, sources: list[Tensor], shape: Shape) -> Tensor:
    (x,) = sources
    per_channel = (1, -1, *[1] * (x.ndim - 2))
    scale, shift = (torch.from_numpy(array).view(per_channel) for array in (step.scale, step.shift))
    return activate(x * scale + shift, step.activation)


@evaluate.register
def _(step: Add, sources: list[Tensor], shape: Shape) -> Tensor:
    a, b = sources
    return activate(a + b, step.activation)


@evaluate.register
def _(step: Elementwise, sources: list[Tensor], shape: Shape) -> Tensor:
    return activate(sources[0], step.activation)


@evaluate.register
def _(step: Concat, sources: list[Tensor], shape: Shape) -> Tensor:
    return torch.cat(sources, dim=1)


@evaluate.register
def _(step: MaxPool, sources: list[Tensor], shape: Shape) -> Tensor:
    window = (step.kernel, step.stride, step.padding, step.dilation)
    return F.max_pool2d(sources[0], *window, ceil_mode=step.ceil_mode)


@evaluate.register
def _(step: AveragePool, sources: list[Tensor], shape: Shape) -> Tensor:
    window = (step.kernel, step.stride, step.padding)
    return F.avg_pool2d(sources[0], *window, ceil_mode=step.ceil_mode, count_include_pad=step.count_padding)


@evaluate.register
def _(step: GlobalAverage, sources: list[Tensor], shape: Shape) -> Tensor:
    return sources[0].mean(dim=(2, 3)).view(shape)


@evaluate.register
def _(step: AdaptiveAverage, sources: list[Tensor], shape: Shape) -> Tensor:
    return F.adaptive_avg_pool2d(sources[0], (shape[-2], shape[-1]))


@evaluate.register
def _(step: Reshape, sources: list[Tensor], shape: Shape) -> Tensor:
    return sources[0].reshape(shape)


@evaluate.register
def _(step: Softmax, sources: list[Tensor], shape: Shape) -> Tensor:
    return torch.softmax(sources[0], dim=step.axis)


@evaluate.register
def _(step: InTorch, sources: list[Tensor], shape: Shape) -> Tensor:
    result: Tensor = step.function(*sources)
    return result
