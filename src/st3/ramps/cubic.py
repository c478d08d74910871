"""The cubic ramp (Zhu & Gupta, 2017), which the ST-3 paper uses."""

from dataclasses import dataclass
from typing import ClassVar, final

from ..core.budget.ramp import RAMPS, USUAL_TIMES, Ramp, check_times, rise

__all__ = ["Cubic"]


@final
@RAMPS.register("cubic")
@dataclass(frozen=True)
class Cubic(Ramp):
    """1 - (1 - t)^3 of the target, with t from 0 at `start` to 1 at `end`.

    >>> ramp = Cubic(start=0.05, end=0.8)
    >>> [round(0.9 * ramp.share(step, 100), 4) for step in (0, 5, 20, 50, 80, 100)]
    [0.0, 0.0, 0.4392, 0.8424, 0.9, 0.9]
    """

    takes_usual_times: ClassVar[bool] = True
    start: float = USUAL_TIMES[0]  # fraction of the run
    end: float = USUAL_TIMES[1]  # fraction of the run

    def __post_init__(self) -> None:
        check_times(start=self.start, end=self.end)

    def share(self, step: int, total_steps: int) -> float:
        return 1.0 - (1.0 - rise(step, total_steps, self.start, self.end)) ** 3
