"""Activations, sums, arithmetic with one constant per channel, softmax."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..program import Activation, Add, Elementwise, Function, Softmax, Step
from .aten_call import COVERED, AtenCall, NotCovered, Translate, aten, covers
from .layers import affine
from .torch_call import Read

ACTIVATIONS = {
    aten.relu.default: Function.RELU,
    aten.relu6.default: Function.RELU6,
    aten.silu.default: Function.SILU,
    aten.hardswish.default: Function.HARDSWISH,
    aten.hardsigmoid.default: Function.HARDSIGMOID,
    aten.sigmoid.default: Function.SIGMOID,
    aten.tanh.default: Function.TANH,
}


def _elementwise(op: AtenCall, function: Function) -> Step:
    activation = Activation(function)
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


@covers(aten.add.Tensor)
def _add(op: AtenCall) -> Step:
    if op["alpha"] != 1:
        raise NotCovered("its alpha is not 1")
    if not isinstance(op["self"], Read) or not isinstance(op["other"], Read):
        return _with_constant(op, lambda constant: (1.0, constant), commutes=True)
    a, b = op.value("self"), op.value("other")
    if op.shapes[a] != op.shapes[b]:
        raise NotCovered("its operands have different shapes")
    return Add(name="", sources=(a, b), target=op.target)


@covers(aten.sub.Tensor)
def _sub(op: AtenCall) -> Step:
    if op["alpha"] != 1:
        raise NotCovered("its alpha is not 1")
    return _with_constant(op, lambda constant: (1.0, -constant))


@covers(aten.mul.Tensor)
def _mul(op: AtenCall) -> Step:
    return _with_constant(op, lambda constant: (constant, 0.0), commutes=True)


@covers(aten.div.Tensor)
def _div(op: AtenCall) -> Step:
    return _with_constant(op, lambda constant: (1.0 / constant, 0.0))


def _with_constant(op: AtenCall, pair: Callable[[Any], tuple[Any, Any]], commutes: bool = False) -> Step:
    """Translate arithmetic with one constant per channel, such as input normalisation or a learned scale."""
    source, constant = op["self"], op["other"]
    if commutes and isinstance(constant, Read):
        source, constant = constant, source
    if not isinstance(source, Read) or isinstance(constant, Read):
        raise NotCovered("both operands depend on the input")
    if op.shapes[source.name] != op.shape or len(op.shape) != 4:
        raise NotCovered("its constant is not one number per channel")
    numbers = torch.as_tensor(constant, dtype=torch.float64).detach().cpu().numpy()
    sizes = (1,) * (4 - numbers.ndim) + numbers.shape
    if any(size != 1 for axis, size in enumerate(sizes) if axis != 1):
        raise NotCovered("its constant is not one number per channel")
    scale, shift = pair(numbers.reshape(-1))
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        raise NotCovered("its constant is not finite")
    return affine(op, source.name, scale, shift)


@covers(aten.softmax.int, aten._softmax.default)
def _softmax(op: AtenCall) -> Step:
    name = "self" if "self" in op.given else "input"
    return Softmax(name="", sources=(op.value(name),), target=op.target, axis=op["dim"] % len(op.shape))
