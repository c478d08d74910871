"""Activations, sums and products, arithmetic with a constant per channel, softmax; functions that models write out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx

from ..program import (
    Activation,
    Add,
    Affine,
    Elementwise,
    Function,
    Multiply,
    Norm,
    Pairwise,
    Select,
    Softmax,
    Step,
)
from .aten_call import COPIES, COVERED, AtenCall, NotCovered, Translate, aten, covers
from .layers import affine
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
    product = _written_out_norm(op) or _written_out_gelu(op) or _pair(op, Multiply)
    return product or _with_constant(op, lambda constant: (constant, 0.0), commutes=True)


def _pair(op: AtenCall, kind: type[Pairwise]) -> Step | None:
    """Translate if both operands are values and one has the shape of the result; None if one is a constant."""
    both = [operand.name for operand in (op["self"], op["other"]) if isinstance(operand, Read)]
    if len(both) < 2:
        return None
    whole = [name for name in both if op.shapes[name] == op.shape]
    if not whole or not op.shape:
        raise NotCovered("both operands are broadcast")
    if {len(op.shapes[name]) for name in both} != {len(op.shape)}:
        raise NotCovered("its operands have different numbers of axes")
    other = both[1] if both[0] == whole[0] else both[0]
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


# ---------------------------------------------------------------- functions that models write out in several operators

# A pattern is a tuple of operators and patterns of their arguments. A string stands for any argument, and for the same
# one wherever it occurs; a number for a number; True for whatever is true.

Found = dict[str, Any]

ADD, MUL = (aten.add.Tensor, aten.add.Scalar), (aten.mul.Tensor, aten.mul.Scalar)
POWER, MEAN = (aten.pow.Tensor_Scalar,), (aten.mean.dim,)

# x * rsqrt(mean(x ** 2) + eps): RMS norm without its weight.
UNCENTRED_NORM = (MUL, "x", ((aten.rsqrt.default,), (ADD, (MEAN, (POWER, "x", 2.0), "axes", True), "eps")))

# 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))
_INNER = (ADD, "x", (MUL, (POWER, "x", 3.0), 0.044715))
TANH_GELU = (MUL, (MUL, "x", 0.5), (ADD, ((aten.tanh.default,), (MUL, _INNER, 0.7978845608)), 1.0))


def _written_out_norm(op: AtenCall) -> Step | None:
    """Return the norm if this product is an RMS norm over the last axis, written out in several operators."""
    found = _match(op.node, UNCENTRED_NORM)
    if found is None or len(op.shape) < 2 or not isinstance(found["eps"], float):
        return None
    source = op["self"] if found["x"] is op.node.args[0] else op["other"]
    if [axis % len(op.shape) for axis in found["axes"]] != [len(op.shape) - 1] or not isinstance(
        source, Read
    ):
        return None
    norm: dict[str, Any] = {"scale": None, "shift": None, "eps": found["eps"], "is_centred": False}
    return Norm(name="", sources=(source.name,), target=op.target, **norm)


def _written_out_gelu(op: AtenCall) -> Step | None:
    found = _match(op.node, TANH_GELU)
    if found is None or found["x"].name not in op.shapes:
        return None
    activation = Activation(Function.GELU_TANH)
    return Elementwise(name="", sources=(found["x"].name,), target=op.target, activation=activation)


def _match(node: Any, pattern: Any, found: Found | None = None) -> Found | None:
    """Return what the strings of a pattern stand for, if a node of the graph matches it."""
    found = {} if found is None else found
    match pattern:
        case True:
            return found if node is True else None
        case float():
            is_same = isinstance(node, int | float) and abs(node - pattern) <= 1e-6 * abs(pattern)
            return found if is_same else None
        case str():
            known = found.get(pattern, node)
            return {**found, pattern: known} if _origin(known) is _origin(node) else None
    operators, *arguments = pattern
    if not isinstance(node, fx.Node) or node.target not in operators or node.kwargs:
        return None
    if len(node.args) != len(arguments):
        return None
    orders = [arguments, arguments[::-1]] if operators in (ADD, MUL) else [arguments]
    for order in orders:
        made: Found | None = found
        for given, wanted in zip(node.args, order, strict=True):
            made = None if made is None else _match(given, wanted, made)
        if made is not None:
            return made
    return None


def _origin(node: Any) -> Any:
    """Return the node behind copies that change nothing."""
    while isinstance(node, fx.Node) and node.target in COPIES:
        source = node.all_input_nodes[0]
        if source.meta["val"].dtype is not torch.float32 or node.meta["val"].dtype is not torch.float32:
            break
        node = source
    return node
