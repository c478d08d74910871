"""Activations, sums and products, arithmetic with one constant per channel, softmax."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..program import (
    Activation,
    Add,
    Affine,
    Elementwise,
    Function,
    Multiply,
    Pairwise,
    Reshape,
    Select,
    Softmax,
    Step,
)
from .aten_call import COVERED, AtenCall, NotCovered, Translate, aten, covers
from .layers import affine, written_out_norm
from .patterns import TANH_GELU, match
from .torch_call import Read, TorchCall

ACTIVATIONS = {
    aten.relu.default: Function.RELU,
    aten.relu6.default: Function.RELU6,
    aten.silu.default: Function.SILU,
    aten.hardswish.default: Function.HARDSWISH,
    aten.hardsigmoid.default: Function.HARDSIGMOID,
    aten.sigmoid.default: Function.SIGMOID,
    aten.tanh.default: Function.TANH,
}


def _elementwise(op: AtenCall, function: Function, parameter: float = 0.0) -> Step:
    activation = Activation(function, parameter)
    return Elementwise(name="", sources=(op.value("self"),), target=op.target, activation=activation)


def _translator(function: Function) -> Translate:
    return lambda op: _elementwise(op, function)


COVERED.update({operator: _translator(function) for operator, function in ACTIVATIONS.items()})


@covers(aten.gelu.default)
def _gelu(op: AtenCall) -> Step:
    return _elementwise(op, Function.GELU_TANH if op["approximate"] == "tanh" else Function.GELU)


@covers(aten.hardtanh.default)
def _hardtanh(op: AtenCall) -> Step:
    return _clamp_to(op, op["min_val"], op["max_val"])


@covers(aten.clamp.default)
def _clamp(op: AtenCall) -> Step:
    return _clamp_to(op, op["min"], op["max"])


@covers(aten.clamp_min.default)
def _clamp_min(op: AtenCall) -> Step:
    return _clamp_to(op, op["min"], None)


def _clamp_to(op: AtenCall, least: Any, most: Any) -> Step:
    if least == 0 and most in (6, None):
        return _elementwise(op, Function.RELU if most is None else Function.RELU6)
    raise NotCovered(f"it clamps to {least} and {most}")


@covers(aten.leaky_relu.default)
def _leaky_relu(op: AtenCall) -> Step:
    return _elementwise(op, Function.LEAKY_RELU, op["negative_slope"])


@covers(aten.elu.default)
def _elu(op: AtenCall) -> Step:
    if op["scale"] != 1 or op["input_scale"] != 1:
        raise NotCovered("it scales")
    return _elementwise(op, Function.ELU, op["alpha"])


@covers(aten.prelu.default)
def _prelu(op: AtenCall) -> Step:
    """Translate to a leaky ReLU, or to slope * x + (1 - slope) * relu(x) if channels have slopes of their own."""
    slope = op.array("weight")
    if (slope == slope[0]).all():
        return _elementwise(op, Function.LEAKY_RELU, float(slope[0]))
    x, shift = op.value("self"), np.zeros_like(slope)
    positive = op.before(Elementwise, x, op.shape, "relu", activation=Activation(Function.RELU))
    above = op.before(Affine, positive, op.shape, "above", scale=1 - slope, shift=shift)
    below = op.before(Affine, x, op.shape, "below", scale=slope, shift=shift)
    return Add(name="", sources=(above, below), target=op.target)


@covers(aten.add.Tensor)
def _add(op: AtenCall) -> Step:
    if op["alpha"] != 1:
        raise NotCovered("its alpha is not 1")
    return _pair(op, Add) or _with_constant(op, lambda constant: (1.0, constant), commutes=True)


@covers(aten.mul.Tensor)
def _mul(op: AtenCall) -> Step:
    product = written_out_norm(op) or _written_out_gelu(op) or _pair(op, Multiply)
    return product or _with_constant(op, lambda constant: (constant, 0.0), commutes=True)


def _written_out_gelu(op: AtenCall) -> Step | None:
    found = match(op.node, TANH_GELU)
    if found is None or found["x"].name not in op.shapes:
        return None
    activation = Activation(Function.GELU_TANH)
    return Elementwise(name="", sources=(found["x"].name,), target=op.target, activation=activation)


def _pair(op: AtenCall, kind: type[Pairwise]) -> Step | None:
    """Translate if both operands are values and one has the shape of the result; None if one is a constant."""
    both = [operand.name for operand in (op["self"], op["other"]) if isinstance(operand, Read)]
    if len(both) < 2:
        return None
    whole = [name for name in both if op.shapes[name] == op.shape]
    if not whole or not op.shape:
        raise NotCovered("both operands are broadcast")
    other = both[1] if both[0] == whole[0] else both[0]
    missing = len(op.shape) - len(op.shapes[other])
    if missing:
        other = op.before(Reshape, other, (1,) * missing + op.shapes[other], "axes")
    return kind(name="", sources=(whole[0], other), target=op.target)


@covers(aten.glu.default)
def _glu(op: AtenCall) -> Step:
    """Translate to the first half of the channels times the sigmoid of the second."""
    rank, source = len(op.shape), op.value("self")
    axis = op["dim"] % rank
    if axis != (1 if rank == 4 else rank - 1) or rank < 2:
        raise NotCovered("it does not halve the channels")
    half, axis = op.shape[axis], 1 if rank == 4 else -1
    first = op.before(Select, source, op.shape, "first", index=np.arange(half), axis=axis)
    second = op.before(Select, source, op.shape, "second", index=np.arange(half, 2 * half), axis=axis)
    gate = op.before(Elementwise, second, op.shape, "gate", activation=Activation(Function.SIGMOID))
    return Multiply(name="", sources=(first, gate), target=op.target)


@covers(aten.sub.Tensor)
def _sub(op: AtenCall) -> Step:
    if op["alpha"] != 1:
        raise NotCovered("its alpha is not 1")
    return _with_constant(op, lambda constant: (1.0, -constant))


@covers(aten.div.Tensor)
def _div(op: AtenCall) -> Step:
    return _with_constant(op, lambda constant: (1.0 / constant, 0.0))


def _with_constant(op: AtenCall, pair: Callable[[Any], tuple[Any, Any]], commutes: bool = False) -> Step:
    """Translate arithmetic with one constant per channel, such as input normalisation or a learned scale."""
    source, constant = op["self"], op["other"]
    if commutes and isinstance(constant, Read):
        source, constant = constant, source
    if not isinstance(source, Read) or isinstance(constant, Read | TorchCall):
        raise NotCovered("it divides by, or subtracts, what it computes from the input")
    if op.shapes[source.name] != op.shape or len(op.shape) < 2:
        raise NotCovered("its constant is not one number per channel")
    numbers = torch.as_tensor(constant, dtype=torch.float64).detach().cpu().numpy()
    sizes = (1,) * (len(op.shape) - numbers.ndim) + numbers.shape
    long = {axis for axis, size in enumerate(sizes) if size != 1} or {
        1 if len(op.shape) == 4 else len(op.shape) - 1
    }
    (axis, *others) = long
    if others or axis not in (1, len(op.shape) - 1):
        raise NotCovered("its constant is not one number per channel")
    scale, shift = pair(numbers.reshape(-1))
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        raise NotCovered("its constant is not finite")
    return affine(op, source.name, scale, shift, 1 if axis == 1 else -1)


@covers(aten.softmax.int, aten._softmax.default)
def _softmax(op: AtenCall) -> Step:
    name = "self" if "self" in op.given else "input"
    return Softmax(name="", sources=(op.value(name),), target=op.target, axis=op["dim"] % len(op.shape))
