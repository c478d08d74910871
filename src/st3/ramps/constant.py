"""The constant ramp: sparse from the first step, or from a later one."""

from dataclasses import dataclass
from typing import final

from ..core.budget.ramp import RAMPS, Ramp, check_times, step_at

__all__ = ["Constant"]


@final
@RAMPS.register("constant")
@dataclass(frozen=True)
class Constant(Ramp):
    """The whole target from `start` on; 0 means before the first step.

    >>> Constant().share(0, 100), Constant(start=0.5).share(49, 100)
    (1.0, 0.0)
    """

    start: float = 0.0  # fraction of the run

    def __post_init__(self) -> None:
        check_times(start=self.start)

    def share(self, step: int, total_steps: int) -> float:
        return 1.0 if step >= step_at(self.start, total_steps) else 0.0
