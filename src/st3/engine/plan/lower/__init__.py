"""Lower each kind of step to operations of the planner.

Each file registers the rules of its kinds with `lower`; a step without a rule is one call of torch.
"""

from ..planner import lower
from . import convolutions, norms, pointwise, pooling, rows

__all__ = ["convolutions", "lower", "norms", "pointwise", "pooling", "rows"]
