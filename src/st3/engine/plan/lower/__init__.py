"""Lower each kind of step to operations of the planner.

Each file registers the rules of its kinds with `lower`; a step without a rule is one call of torch.

    dispatch         lower, and the call of torch
    windows          pooling as one operation
    rowwise          steps on a few rows in contiguous order, as one operation
    convolutions, linears, norms, pooling, pointwise, shapes
                     the rules
"""

from . import convolutions, linears, norms, pointwise, pooling, shapes
from .dispatch import lower

__all__ = ["convolutions", "linears", "lower", "norms", "pointwise", "pooling", "shapes"]
