"""Sparse and dense phases in turn, as AC/DC has them."""

from dataclasses import dataclass
from typing import ClassVar, final

from ..core.budget.ramp import RAMPS, Ramp, check_times, step_at
from ..core.choices import check_count

__all__ = ["Phases"]


@final
@RAMPS.register("phases")
@dataclass(frozen=True)
class Phases(Ramp):
    """Dense up to `start`, then `rounds` of a sparse and a dense phase, sparse from `end` on (AC/DC).

    All phases between `start` and `end` have the same length, but the last dense one is `rest` times as long. The
    defaults are AC/DC's for ImageNet: 10 of 100 epochs dense, then 5 and 5 in turn, dense from 75 on, sparse from 85.

    >>> ramp = Phases(start=0.1, end=0.85)
    >>> [ramp.share(epoch, 100) for epoch in (0, 10, 14, 15, 20, 70, 75, 84, 85, 100)]
    [0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    """

    falls: ClassVar[bool] = True
    start: float = 0.1  # fraction of the run
    end: float = 0.85  # fraction of the run
    rounds: int = 7  # sparse phases before the last one
    rest: int = 2  # length of the last dense phase, in phases

    def __post_init__(self) -> None:
        check_times(start=self.start, end=self.end)
        for name, number in (("rounds", self.rounds), ("rest", self.rest)):
            check_count(number, name, least=1, meaning="a number of phases")

    def share(self, step: int, total_steps: int) -> float:
        first = step_at(self.start, total_steps)
        last = max(first + 1, step_at(self.end, total_steps))
        if step < first:
            return 0.0
        if step >= last:
            return 1.0
        phases = 2 * self.rounds - 1 + self.rest
        phase = (step - first) * phases // (last - first)
        return 1.0 if phase % 2 == 0 and phase < 2 * self.rounds else 0.0
