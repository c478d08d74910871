"""Axes: where a value lies along one, and ticks at round numbers."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...training.tasks import Score

__all__ = ["Scale", "counting", "epochs", "linear", "logarithmic", "nice_step", "percents", "score_scale"]


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    warp: Callable[[float], float] = float

    def place(self, value: float) -> float:
        """Return 0 at `low`, 1 at `high`, and the nearest end for values outside."""
        low, high = self.warp(self.low), self.warp(self.high)
        return (self.warp(min(max(value, self.low), self.high)) - low) / (high - low)


def nice_step(span: float, most: int) -> float:
    """Return 1, 2 or 5 times a power of ten that divides `span` into at most `most` steps.

    >>> nice_step(100, 5), nice_step(0.93, 5), nice_step(160, 8)
    (20.0, 0.2, 20.0)
    """
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(step for step in (power, 2 * power, 5 * power, 10 * power, 20 * power) if span / step <= most)


def linear(values: Iterable[float], most: int = 5) -> Scale:
    """Return a scale from a round number below all values to one above; it includes 0 if that is near."""
    values = list(values) or [0.0]
    low, high = min(values), max(values)
    if 0 < low < 0.4 * high:
        low = 0.0
    if high - low < (least := 0.1 * abs(high) or 1e-6):  # otherwise a flat curve would show rounding errors
        middle = (low + high) / 2
        low, high = middle - least / 2, middle + least / 2
    step = nice_step(high - low, most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    return Scale(ticks[0], ticks[-1], tuple(ticks), _labels(ticks, step))


def percents(values: Iterable[float]) -> Scale:
    """Return a linear scale that ends at 100."""
    whole = linear(values)
    kept = [(tick, label) for tick, label in zip(whole.ticks, whole.labels, strict=True) if tick < 100.1]
    ticks, labels = zip(*kept, strict=True)
    return Scale(ticks[0], ticks[-1], ticks, labels)


def score_scale(score: Score) -> Callable[[list[float]], Scale]:
    """Return the scale of a score: it ends at 100 if that is the largest value there can be."""
    return percents if score.most is not None else linear


def logarithmic(values: Iterable[float]) -> Scale:
    """Return a scale over whole decades; all values must be above 0."""
    values = list(values)
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    high = max(high, low + 1)
    every = 1 + (high - low) // 6
    ticks = tuple(10.0**power for power in range(low, high + 1, every))
    return Scale(10.0**low, 10.0**high, ticks, tuple(_format_with_prefix(tick) for tick in ticks), math.log10)


def counting(values: Iterable[float]) -> Scale:
    """Return a scale for counts of very different sizes: log(1 + n), which includes 0."""
    high = max(1, math.ceil(math.log10(max([1.0, *values]))))
    every = 1 + high // 5
    ticks = (0.0, *(10.0**power for power in range(high, -1, -every)))
    ticks = tuple(sorted(tick for tick in ticks if tick != 1.0 or high < 3))
    return Scale(0.0, 10.0**high, ticks, tuple(_format_with_prefix(tick) for tick in ticks), math.log1p)


def epochs(last: float) -> Scale:
    """Return an axis from the start of training to the last epoch, with ticks at whole numbers."""
    last = max(last, 1.0)
    step = max(1.0, nice_step(last, 8))
    ticks = tuple(number * step for number in range(math.floor(last / step + 1e-9) + 1))
    return Scale(0.0, last, ticks, tuple(f"{tick:g}" for tick in ticks))


def _labels(ticks: list[float], step: float) -> tuple[str, ...]:
    largest = max(map(abs, ticks))
    if largest >= 10_000:
        return tuple(_format_with_prefix(tick) for tick in ticks)
    if largest < 0.001:
        power = math.floor(math.log10(largest))
        return tuple("0" if not tick else f"{tick / 10.0**power:.3g}e{power}" for tick in ticks)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return tuple(f"{tick:.{digits}f}" for tick in ticks)


def _format_with_prefix(number: float) -> str:
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.4g}{prefix}"
    return f"{number:.4g}"
