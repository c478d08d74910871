"""Activations."""

from typing import Any

from ..aten_call import AtenCall, NotCovered
from ..program import Activation, Elementwise, Step
from .table import COVERED, Translate, aten, covers

ACTIVATIONS = {
    aten.relu.default: "relu",
    aten.relu6.default: "relu6",
    aten.silu.default: "silu",
    aten.hardswish.default: "hardswish",
    aten.hardsigmoid.default: "hardsigmoid",
    aten.sigmoid.default: "sigmoid",
    aten.tanh.default: "tanh",
}


def _elementwise(op: AtenCall, name: str) -> Step:
    return Elementwise(name="", sources=(op.value("self"),), target=op.target, activation=Activation(name))


def _named(name: str) -> Translate:
    return lambda op: _elementwise(op, name)


COVERED.update({operator: _named(name) for operator, name in ACTIVATIONS.items()})


@covers(aten.gelu.default)
def _gelu(op: AtenCall) -> Step:
    return _elementwise(op, "gelu_tanh" if op["approximate"] == "tanh" else "gelu")


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
        return _elementwise(op, "relu" if most is None else "relu6")
    raise NotCovered(f"it clamps to {least} and {most}")
