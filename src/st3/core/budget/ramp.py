"""Ramps: which part of the target sparsity is asked for after a number of optimizer steps.

A ramp is a function of the step and the length of the run, nothing else: it remembers nothing, so a resumed run cannot
fall out of step with it. Its times are fractions of the run, so the same ramp fits a run of any length. The ramps
themselves are in `st3/ramps/`, one file each.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

from ...registry import Registry

__all__ = ["RAMPS", "USUAL_TIMES", "Progress", "Ramp", "check_times", "resolve_ramp", "rise", "step_at"]

USUAL_TIMES = (5 / 160, 0.5)  # the paper's: from the 5th to the 80th of 160 epochs


class Ramp(ABC):
    """How the sparsity rises. A ramp is a frozen dataclass; times among its fields are fractions of the run."""

    takes_usual_times: ClassVar[bool] = (
        False  # given by name, its `start` and `end` are what the method declares
    )
    falls: ClassVar[bool] = False  # asks for less again: only for methods that restore weights

    @abstractmethod
    def share(self, step: int, total_steps: int) -> float:
        """Return the part of the target, 0 to 1, that is asked for after `step` of `total_steps` steps."""


RAMPS: Registry[Callable[..., Ramp]] = Registry("ramp")


@dataclass(frozen=True)
class Progress(Ramp):
    """A ramp given as a function: progress of the run, 0 to 1 -> part of the target, 0 to 1."""

    function: Callable[[float], float]

    def share(self, step: int, total_steps: int) -> float:
        return self.function(step / total_steps)


def step_at(time: float, total_steps: int) -> int:
    """Return the step nearest to a fraction of the run.

    >>> step_at(0.5, 1000)
    500
    """
    return int(time * total_steps + 0.5)


def rise(step: int, total_steps: int, start: float, end: float) -> float:
    """Return how much of the time from `start` to `end`, fractions of the run, is over after `step` steps: 0 to 1.

    >>> rise(25, 100, start=0.0, end=0.5)
    0.5
    """
    first, last = step_at(start, total_steps), step_at(end, total_steps)
    return 1.0 if step >= last else max(0.0, (step - first) / max(1, last - first))


def check_times(**times: float) -> None:
    """Raise unless the times, given by name in their order, are rising fractions of the run.

    >>> check_times(start=0.1, end=500)
    Traceback (most recent call last):
        ...
    ValueError: end is a fraction of the run, from 0 to 1, got 500: divide steps by total_steps, epochs by ...
    """
    for name, time in times.items():
        if isinstance(time, bool) or not isinstance(time, Real):
            raise TypeError(f"{name} must be a fraction of the run, a number from 0 to 1, got {time!r}")
        if not 0.0 <= time <= 1.0:
            advice = ": divide steps by total_steps, epochs by the epochs of the run" if time > 1.0 else ""
            raise ValueError(f"{name} is a fraction of the run, from 0 to 1, got {time!r}{advice}")
    (first, start), *others = times.items()
    for last, end in others:
        if end <= start:
            raise ValueError(f"{last} must come after {first}, got {first}={start!r} and {last}={end!r}")


def resolve_ramp(
    ramp: str | Ramp | Callable[[float], float], times: tuple[float, float] | None = None
) -> Ramp:
    """Return the ramp object for a name, an object, or a function of the run's progress.

    `times` are the usual start and end of the method, for a ramp given by name.
    """
    if isinstance(ramp, str):
        kind = RAMPS[ramp]
        start, end = times or USUAL_TIMES
        return kind(start=start, end=end) if getattr(kind, "takes_usual_times", False) else kind()
    if isinstance(ramp, Ramp):
        return ramp
    if isinstance(ramp, type) or not callable(ramp):
        raise TypeError(
            f"ramp must be a name ({', '.join(RAMPS)}), an object such as st3.ramps.Cubic(start=0.1, end=0.5), or a "
            f"function of the progress of the run, 0 to 1, that returns a part of the target, 0 to 1; got {ramp!r}"
        )
    return Progress(ramp)
