"""How the sparsity rises over the run: one file per ramp; importing this package registers them all.

`Ramp` is the base of a ramp of one's own, `RAMPS.register("name")` makes it known by name.
"""

from typing import Any

from ..core.budget.ramp import RAMPS, Ramp
from ..registry import import_siblings, unknown_name

__all__ = ["RAMPS", "Ramp"]
__all__ += import_siblings(__name__, __path__, globals())


def __getattr__(name: str) -> Any:
    raise unknown_name(__name__, name, __all__)
