"""Lower each kind of step to operations of the planner.

Each file registers the rules of its kinds with `lower`; a step without a rule is one call of torch.

    dispatch         lower, and the call of torch
    operands         a convolution with the fields it reads and writes
    windows          pooling as one operation
    chains           a convolution and a channel-wise step as one operation
    combine          activation(a * scale + shift) as one operation
    rowwise          steps on a few rows in contiguous order, as one operation
    convolutions, linears, norms, pooling, global_average, pointwise, shapes
                     the rules
"""

from . import convolutions, global_average, linears, norms, pointwise, pooling, shapes
from .dispatch import lower

__all__ = ["convolutions", "global_average", "linears", "lower", "norms", "pointwise", "pooling", "shapes"]
