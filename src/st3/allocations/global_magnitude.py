"""One threshold for all layers: ST-3's allocation."""

from dataclasses import dataclass
from typing import final

from ..core.budget.allocation import ALLOCATIONS, Allocation, Cut, Pool
from ..core.selection.select import Quota

__all__ = ["Global"]


@final
@ALLOCATIONS.register("global")
@dataclass(frozen=True)
class Global(Allocation):
    """One threshold on the magnitude over all layers (ST-3)."""

    def cut(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        return pool.cut(quota)
