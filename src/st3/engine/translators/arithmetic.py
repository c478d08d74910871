"""Sums, arithmetic with one constant per channel, concatenation, softmax."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..aten_call import AtenCall, NotCovered
from ..program import Add, Concat, Softmax, Step
from ..torch_call import Read
from .layers import affine
from .table import aten, covers


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


@covers(aten.cat.default)
def _cat(op: AtenCall) -> Step:
    parts = op["tensors"]
    if not all(isinstance(part, Read) for part in parts):
        raise NotCovered("one of its inputs is a constant")
    if op["dim"] % len(op.shape) != 1 or len(op.shape) not in (2, 4):
        raise NotCovered("it does not concatenate channels")
    if any(len(op.shapes[part.name]) != len(op.shape) for part in parts):
        raise NotCovered("one of its inputs is empty")
    return Concat(name="", sources=tuple(part.name for part in parts), target=op.target)


@covers(aten.softmax.int, aten._softmax.default)
def _softmax(op: AtenCall) -> Step:
    name = "self" if "self" in op.given else "input"
    return Softmax(name="", sources=(op.value(name),), target=op.target, axis=op["dim"] % len(op.shape))
