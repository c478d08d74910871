"""Translators from aten operators to steps.

A translator takes one call and returns its step, or a `Read` if the result is another value unchanged. It raises
`NotCovered` with the reason if this call has to run in torch. The caller names the steps.
"""

from . import activations, arithmetic, layers, pooling, shapes
from .table import COVERED

__all__ = ["COVERED", "activations", "arithmetic", "layers", "pooling", "shapes"]
