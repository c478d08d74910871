"""Ramps: how much sparsity is asked for after a number of optimizer steps.

A ramp is a function of the step, nothing else: it remembers nothing, so a resumed run cannot fall out of
step with it. `start` and `end` are optimizer steps; the value at `step` is what holds *after* that many
steps, so a ramp that ends at step 80 asks for the full target right after the 80th step.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real

from ..registry import Registry

__all__ = ["RAMPS", "Constant", "Cubic", "Linear", "Phases", "Ramp", "check_ramp", "resolve_ramp", "step_of"]

Ramp = Callable[[int], float]
RAMPS: Registry[Callable[[float, int, int], Ramp]] = Registry("ramp")


@RAMPS.register("cubic")
@dataclass(frozen=True)
class Cubic:
    """s(t) = final * (1 - (1 - t)^3), with t from 0 at `start` to 1 at `end` (Zhu & Gupta; the paper's).

    >>> ramp = Cubic(final=0.9, start=5, end=80)
    >>> [round(ramp(step), 4) for step in (0, 5, 20, 50, 80, 100)]
    [0.0, 0.0, 0.4392, 0.8424, 0.9, 0.9]
    """

    final: float
    start: int
    end: int

    def __call__(self, step: int) -> float:
        return self.final * (1.0 - (1.0 - _progress(step, self.start, self.end)) ** 3)


@RAMPS.register("linear")
@dataclass(frozen=True)
class Linear:
    """s(t) = final * t, with t from 0 at `start` to 1 at `end`.

    >>> Linear(final=0.9, start=0, end=10)(5)
    0.45
    """

    final: float
    start: int
    end: int

    def __call__(self, step: int) -> float:
        return self.final * _progress(step, self.start, self.end)


@RAMPS.register("constant")
@dataclass(frozen=True)
class Constant:
    """The final sparsity from step `start` on (0: from before the first step), none before; `end` plays no part.

    >>> Constant(final=0.9, start=0, end=0)(0)
    0.9
    """

    final: float
    start: int = 0
    end: int = 0

    def __call__(self, step: int) -> float:
        return self.final if step >= self.start else 0.0


@RAMPS.register("phases")
@dataclass(frozen=True)
class Phases:
    """Dense and sparse in turn (AC/DC): dense up to `start`, `rounds` of a sparse and a dense phase, sparse from `end`.

    All phases between `start` and `end` are equally long but the last dense one, which is `rest` times as long. The
    defaults are AC/DC's for ImageNet: 10 of 100 epochs dense, then 5 and 5 in turn, dense from 75 on, sparse from 85.

    >>> ramp = Phases(final=0.9, start=10, end=85)
    >>> [ramp(epoch) for epoch in (0, 10, 14, 15, 20, 70, 75, 84, 85, 100)]
    [0.0, 0.9, 0.9, 0.0, 0.9, 0.9, 0.0, 0.0, 0.9, 0.9]
    """

    final: float
    start: int
    end: int
    rounds: int = 7
    rest: int = 2

    def __post_init__(self) -> None:
        for name, number in (("rounds", self.rounds), ("rest", self.rest)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")

    def __call__(self, step: int) -> float:
        if step < self.start:
            return 0.0
        if step >= self.end:
            return self.final
        phases = 2 * self.rounds - 1 + self.rest
        phase = (step - self.start) * phases // (self.end - self.start)
        return self.final if phase % 2 == 0 and phase < 2 * self.rounds else 0.0


def _progress(step: int, start: int, end: int) -> float:
    return min(1.0, max(0.0, (step - start) / (end - start)))


def step_of(moment: float, total_steps: int, name: str) -> int:
    """Return `moment` as an optimizer step: a float is a fraction of the run, an int is a step.

    >>> step_of(0.5, 1000, "end"), step_of(500, 1000, "end")
    (500, 500)
    """
    if isinstance(moment, bool) or not isinstance(moment, Real):
        raise TypeError(
            f"{name} must be a fraction of the run (float) or a step (int), got {moment!r} of type "
            f"{type(moment).__name__}"
        )
    if isinstance(moment, Integral):
        if moment < 0:
            raise ValueError(f"{name} must not be negative, got step {moment}")
        return int(moment)
    if not 0.0 <= moment <= 1.0:
        advice = f" (a step? write the whole number {moment:.0f})" if moment > 1.0 else ""
        raise ValueError(
            f"{name} as a fraction of the run must lie between 0.0 and 1.0, got {moment!r}{advice}"
        )
    return int(moment * total_steps + 0.5)


def check_ramp(ramp: str | Ramp) -> None:
    """Raise if `ramp` is neither a known name nor a function."""
    if isinstance(ramp, str):
        _ = RAMPS[ramp]
    elif not callable(ramp):
        raise TypeError(f"ramp must be a name ({', '.join(RAMPS)}) or a function of the step, got {ramp!r}")


def resolve_ramp(ramp: str | Ramp, *, sparsity: float, start: int, end: int, total_steps: int) -> Ramp:
    """Return `ramp` as a function of the step, after checking that it reaches `sparsity` within the run."""
    check_ramp(ramp)
    if isinstance(ramp, str):
        if ramp != "constant" and end <= start:
            raise ValueError(
                f"the {ramp} ramp has no step to rise in: it starts at step {start} and ends at step {end} of "
                f"{total_steps}; give more total_steps, or a later end"
            )
        ramp = RAMPS[ramp](sparsity, start, end)
    reached = ramp(total_steps)
    if reached > sparsity and not math.isclose(reached, sparsity, rel_tol=1e-9):
        raise ValueError(
            f"the ramp asks for {reached:.4g} at step {total_steps}, more than the sparsity of {sparsity:g}"
        )
    if not math.isclose(reached, sparsity, rel_tol=1e-9):
        where = f"ends at step {end} but the run stops" if end > total_steps else "has not reached the target"
        raise ValueError(
            f"the ramp {where} at step {total_steps}: sparsity would stop at {reached:.4g} of {sparsity:g}; "
            f"let it end earlier or give more total_steps"
        )
    first = ramp(0)
    if not 0.0 <= first < 1.0:
        raise ValueError(f"the ramp must stay at or above 0 and below 1, but asks for {first!r} at step 0")
    return ramp
