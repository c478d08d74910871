"""The linear ramp."""

from dataclasses import dataclass
from typing import ClassVar, final

from ..core.budget.ramp import RAMPS, USUAL_TIMES, Ramp, check_times, rise

__all__ = ["Linear"]


@final
@RAMPS.register("linear")
@dataclass(frozen=True)
class Linear(Ramp):
    """t of the target, with t from 0 at `start` to 1 at `end`.

    >>> Linear(start=0.0, end=0.5).share(25, 100)
    0.5
    """

    takes_usual_times: ClassVar[bool] = True
    start: float = USUAL_TIMES[0]  # fraction of the run
    end: float = USUAL_TIMES[1]  # fraction of the run

    def __post_init__(self) -> None:
        check_times(start=self.start, end=self.end)

    def share(self, step: int, total_steps: int) -> float:
        return rise(step, total_steps, self.start, self.end)
