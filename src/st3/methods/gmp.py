"""GMP: gradual magnitude pruning ("To prune, or not to prune", Zhu & Gupta, 2017).

    W_sparse = W * mask                                               forward
    dL/dW    = dL/dW_sparse * mask                                    backward
    mask    <- mask and |W| > th                                      every `every` steps, th by the ramp's sparsity

A pruned weight is 0 and never returns: masks only shrink, and the momentum of pruned weights is cleared.

Different from the original, as the ST-3 paper re-ran it: one threshold is taken over all layers and the mask changes
with every step; the original prunes every layer alike (allocation="uniform") every 100 steps or so (every=100, and at
least 20 times per run). The curves of the ST-3 paper come from a program that leaves the momentum of pruned weights
alone, so that it may push a weight back over a threshold that is still small: GMP(returns=True) does the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from torch import Tensor

from ..core.choices import check_count
from ..core.families.mask_view import MaskView, Moment
from ..core.families.masked import MaskMethod
from ..core.method import METHODS

__all__ = ["GMP"]


@final
@METHODS.register("gmp")
@dataclass(frozen=True)
class GMP(MaskMethod):
    """Gradual magnitude pruning: the smallest weights go as the ramp rises, and never return."""

    every: int = 1  # steps between two prunings
    returns: bool = False  # momentum may bring a pruned weight back, as for the ST-3 authors

    def __post_init__(self) -> None:
        check_count(self.every, "every", least=1, meaning="a number of steps")

    def why_not_in_blocks(self, sparsity: float) -> str:
        return ""  # all its masks come from `moment.largest`

    def is_due(self, moment: Moment) -> bool:
        return moment.asked > 0 and (moment.is_every(self.every) or moment.arrives)

    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        kept = moment.largest([view.weight for view in views], moment.asked)
        return kept if self.returns else [view.mask & mask for view, mask in zip(views, kept, strict=True)]

    @property
    def clears_momentum(self) -> bool:
        return not self.returns
