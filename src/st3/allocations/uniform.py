"""The same sparsity in every layer."""

from dataclasses import dataclass
from typing import ClassVar, final

from ..core.budget.allocation import ALLOCATIONS, Allocation, Cut, Pool
from ..core.selection.select import Quota

__all__ = ["Uniform"]


@final
@ALLOCATIONS.register("uniform")
@dataclass(frozen=True)
class Uniform(Allocation):
    """The same sparsity in every layer."""

    shares_by_shape: ClassVar[bool] = True

    def cut(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        share = quota.zeros / max(1, pool.numel)
        return pool.cut_by_counts([share * layer.numel for layer in pool.layers], quota)
