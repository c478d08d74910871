"""Lower each kind of step to operations of the planner.

Each file registers the rules of its kinds with `lower`; a step without a rule is one call of torch.

    dispatch         lower, and the call of torch
    windows          pooling as one operation
    convolutions, linears, pooling, pointwise, shapes
                     the rules
"""

from . import convolutions, linears, pointwise, pooling, shapes
from .dispatch import lower

__all__ = ["convolutions", "linears", "lower", "pointwise", "pooling", "shapes"]
