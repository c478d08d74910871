"""The reference interpreter: executes a program step by step in torch.

Every kernel is tested against it, and it runs where no library was built.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import singledispatch

import torch
from torch import Tensor
from torch.nn import functional as F

from .program import (
    Activation,
    AdaptiveAverage,
    Add,
    Affine,
    Attention,
    AveragePool,
    Concat,
    Conv,
    Dequantise,
    Elementwise,
    Floats,
    Function,
    GlobalAverage,
    GroupNorm,
    InTorch,
    Linear,
    Lookup,
    MaxPool,
    Multiply,
    Norm,
    Place,
    Program,
    Quantise,
    Quantised,
    QuantisedConv,
    Quantum,
    Resample,
    Reshape,
    Select,
    Shape,
    Softmax,
    Step,
    View,
    taps_of,
)

ACTIVATIONS: Mapping[Function, Callable[[Tensor, float], Tensor]] = {
    Function.RELU: lambda x, _: F.relu(x),
    Function.RELU6: lambda x, _: F.relu6(x),
    Function.GELU: lambda x, _: F.gelu(x),
    Function.GELU_TANH: lambda x, _: F.gelu(x, approximate="tanh"),
    Function.SILU: lambda x, _: F.silu(x),
    Function.HARDSWISH: lambda x, _: F.hardswish(x),
    Function.HARDSIGMOID: lambda x, _: F.hardsigmoid(x),
    Function.SIGMOID: lambda x, _: torch.sigmoid(x),
    Function.TANH: lambda x, _: torch.tanh(x),
    Function.LEAKY_RELU: F.leaky_relu,
    Function.ELU: F.elu,
}


def interpret(program: Program, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the program's outputs for these inputs."""
    values = dict(zip(program.inputs, inputs, strict=True))
    values |= {
        step.target: made for step, _, made in evaluate_all(program, inputs) if step.target in program.outputs
    }
    return tuple(values[name] for name in program.outputs)


def evaluate_all(program: Program, inputs: Sequence[Tensor]) -> Iterator[tuple[Step, list[Tensor], Tensor]]:
    """Yield every step with its sources and its result; a value is kept until its last use."""
    values = dict(zip(program.inputs, inputs, strict=True))
    last_use = {source: number for number, step in enumerate(program) for source in step.sources}
    for number, step in enumerate(program):
        sources = [values[name] for name in step.sources]
        with torch.no_grad():  # not around `yield`: the caller's mode is its own
            values[step.target] = evaluate(step, sources, program.shapes[step.target])
        yield step, sources, values[step.target]
        for name in step.sources:
            if last_use[name] == number:
                values.pop(name, None)


def activate(x: Tensor, activation: Activation | None) -> Tensor:
    """Apply an activation, if there is one."""
    return x if activation is None else ACTIVATIONS[activation.function](x, activation.parameter)


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
def _(step: Quantised, sources: list[Tensor], shape: Shape) -> Tensor:
    """In float64, which holds the sums of bytes exactly."""
    axis = step.AXIS or 0
    x = _from_bytes(sources[0], step.source_quantum, axis)
    scale = torch.from_numpy(step.weight_scale).double().view(-1, *[1] * (step.weight.ndim - 1))
    weight = torch.from_numpy(step.weight).double() * scale
    bias = None if step.bias is None else torch.from_numpy(step.bias).double()
    if isinstance(step, QuantisedConv):
        x = x[:, : weight.shape[1] * step.groups]
        y = F.conv2d(x, weight, bias, step.stride, step.padding, step.dilation, step.groups)
    else:
        y = F.linear(x[..., : weight.shape[1]], weight, bias)
    for residual in sources[1:]:
        if step.residual_quantum:
            residual = _from_bytes(residual, step.residual_quantum, axis).narrow(axis, 0, len(weight))
        y = y + residual
    y = activate(y, step.activation)
    return y.float() if step.target_quantum is None else _to_bytes(y, step.target_quantum, axis)


@evaluate.register
def _(step: Quantise, sources: list[Tensor], shape: Shape) -> Tensor:
    return _to_bytes(sources[0], step.quantum, step.axis)


@evaluate.register
def _(step: Dequantise, sources: list[Tensor], shape: Shape) -> Tensor:
    numbers = _from_bytes(sources[0], step.quantum, step.axis)
    return numbers.narrow(step.axis, 0, shape[step.axis]).float()


def _to_bytes(x: Tensor, quantum: Quantum, axis: int) -> Tensor:
    """Return numbers as words of four channels, typed as floats; missing channels are zero."""
    x = (x / quantum.scale).round_().add_(quantum.zero).clamp_(0, 255).movedim(axis, -1)
    x = F.pad(x, (0, -x.shape[-1] % 4), value=quantum.zero).to(torch.uint8)
    words: Tensor = x.contiguous().view(torch.float32)
    return words.movedim(-1, axis)


def _from_bytes(words: Tensor, quantum: Quantum, axis: int) -> Tensor:
    found = words.movedim(axis, -1).contiguous().view(torch.uint8).movedim(-1, axis)
    return (found.double() - quantum.zero) * quantum.scale


@evaluate.register
def _(step: Linear, sources: list[Tensor], shape: Shape) -> Tensor:
    x, *residual = sources
    y = F.linear(x, torch.from_numpy(step.weight), tensor(step.bias))
    return activate(sum(residual, y), step.activation)


@evaluate.register
def _(step: Affine, sources: list[Tensor], shape: Shape) -> Tensor:
    (x,) = sources
    scale, shift = (_along(step.axis, array, x) for array in (step.scale, step.shift))
    return activate(x * scale + shift, step.activation)


def _along(axis: int, array: Floats, x: Tensor) -> Tensor:
    """Return a vector in a shape that is broadcast along an axis of x."""
    sides = [1] * x.ndim
    sides[axis] = -1
    return torch.from_numpy(array).view(sides)


@evaluate.register
def _(step: Add, sources: list[Tensor], shape: Shape) -> Tensor:
    a, b = sources
    return activate(a + b, step.activation)


@evaluate.register
def _(step: Multiply, sources: list[Tensor], shape: Shape) -> Tensor:
    a, b = sources
    return activate(a * b, step.activation)


@evaluate.register
def _(step: Norm, sources: list[Tensor], shape: Shape) -> Tensor:
    (x,) = sources
    if step.is_centred:
        x = x - x.mean(step.axis, keepdim=True)
    x = x * torch.rsqrt(x.square().mean(step.axis, keepdim=True) + step.eps)
    x = x if step.scale is None else x * _along(step.axis, step.scale, x)
    return x if step.shift is None else x + _along(step.axis, step.shift, x)


@evaluate.register
def _(step: GroupNorm, sources: list[Tensor], shape: Shape) -> Tensor:
    return F.group_norm(sources[0], step.groups, tensor(step.scale), tensor(step.shift), step.eps)


@evaluate.register
def _(step: Resample, sources: list[Tensor], shape: Shape) -> Tensor:
    return _mix(_mix(sources[0], 2, step.rows), 3, step.columns)


def _mix(x: Tensor, axis: int, matrix: Floats) -> Tensor:
    """Return the products of the matrix with the vectors along an axis of images."""
    columns, numbers = map(torch.from_numpy, taps_of(matrix))
    shape = (-1, 1)[: 4 - axis]
    taps = zip(columns.clamp(min=0).T, numbers.T, strict=True)
    return torch.stack([x.index_select(axis, at) * by.view(shape) for at, by in taps]).sum(0)


@evaluate.register
def _(step: Select, sources: list[Tensor], shape: Shape) -> Tensor:
    return sources[0].index_select(step.axis, torch.from_numpy(step.index))


@evaluate.register
def _(step: Elementwise, sources: list[Tensor], shape: Shape) -> Tensor:
    return activate(sources[0], step.activation)


@evaluate.register
def _(step: Concat, sources: list[Tensor], shape: Shape) -> Tensor:
    return torch.cat(sources, dim=1)


@evaluate.register
def _(step: MaxPool, sources: list[Tensor], shape: Shape) -> Tensor:
    window = (step.kernel, step.stride, step.padding, step.dilation)
    if step.has_bytes:
        quantum = Quantum(1.0, 0)
        pooled = F.max_pool2d(_from_bytes(sources[0], quantum, 1), *window, ceil_mode=step.ceil_mode)
        return _to_bytes(pooled, quantum, 1)
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
def _(step: Attention, sources: list[Tensor], shape: Shape) -> Tensor:
    query, keys, values = (
        _view(source, view)
        for source, view in zip(sources, (step.query, step.keys, step.values), strict=False)
    )
    shared = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(shared, 1), values.repeat_interleave(shared, 1)
    mask = _view(sources[3], step.mask) if step.mask else None
    if step.until:
        until = _view(_numbers(sources[3]), step.until)
        mask = torch.arange(keys.shape[2]) <= until[:, None, :, None]
    found = F.scaled_dot_product_attention(
        query, keys, values, mask, is_causal=step.is_causal, scale=step.scale
    )
    return found.transpose(1, 2)


@evaluate.register
def _(step: Lookup, sources: list[Tensor], shape: Shape) -> Tensor:
    return F.embedding(_numbers(sources[0]), torch.from_numpy(step.table)).view(shape)


@evaluate.register
def _(step: Place, sources: list[Tensor], shape: Shape) -> Tensor:
    whole, rows, bits = sources
    numbers = _numbers(bits)
    if step.wraps:
        numbers = torch.where(numbers < 0, numbers + whole.shape[step.axis], numbers)
    return whole.index_copy(step.axis, numbers, _view(rows, step.rows))


def _view(x: Tensor, view: View) -> Tensor:
    x = x.contiguous()
    return x.as_strided(view.shape, view.strides, x.storage_offset() + view.offset)


def _numbers(bits: Tensor) -> Tensor:
    return bits.contiguous().view(torch.int64)


@evaluate.register
def _(step: InTorch, sources: list[Tensor], shape: Shape) -> Tensor:
    result: Tensor = step.function(*sources)
    return result
