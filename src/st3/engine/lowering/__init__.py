"""Each kind of step as operations of the planner.

`lower` knows the kinds by the rules that the files register; a step without a rule is one call of torch.

    dispatch         lower, and the call of torch
    operands         a convolution and the fields it reads and writes
    windows          maxima and means over windows, as one operation
    chains           a convolution and the step that takes each of its channels by itself, as one operation
    combine          activation(a * scale + shift + b), as one operation
    convolutions, linears, pooling, global_average, pointwise, shapes
                     the rules
"""

from . import convolutions, global_average, linears, pointwise, pooling, shapes
from .dispatch import lower

__all__ = ["convolutions", "global_average", "linears", "lower", "pointwise", "pooling", "shapes"]
