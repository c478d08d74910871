"""Lower each kind of step to operations of the planner.

Each file registers the rules of its kinds with `lower`; a step without a rule is one call of torch.
"""

from ..planner import lower
from . import attention, convolutions, norms, pointwise, pooling, quantised, rows

__all__ = ["attention", "convolutions", "lower", "norms", "pointwise", "pooling", "quantised", "rows"]
