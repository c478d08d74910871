"""The operations of torch that have a step of their own.

A function here takes one operation and returns its step, or `Read` if the result is another value unchanged. It raises
`NotCovered` with the reason if this use of the operator needs torch. Names are given by the caller.
"""

from . import activations, arithmetic, layers, pooling, shapes
from .table import COVERED

__all__ = ["COVERED", "activations", "arithmetic", "layers", "pooling", "shapes"]
