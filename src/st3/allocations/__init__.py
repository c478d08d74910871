"""How sparsity is shared among the layers: one file per allocation; importing this package registers them all.

`Allocation` is the base of an allocation of one's own, `ALLOCATIONS.register("name")` makes it known by name; `Pool`,
`Quota` and `Cut` are what it is given and what it returns.
"""

from typing import Any

from ..core.budget.allocation import ALLOCATIONS, Allocation, Cut, Pool
from ..core.selection.select import Quota
from ..registry import import_siblings, unknown_name

__all__ = ["ALLOCATIONS", "Allocation", "Cut", "Pool", "Quota"]
__all__ += import_siblings(__name__, __path__, globals())


def __getattr__(name: str) -> Any:
    raise unknown_name(__name__, name, __all__)
