"""Verdicts: what our points say about a sentence of the paper.

The rule. Two curves are compared at the sparsities of the one with fewer points, from 80 % on. Where the other has no
point (cycles end at 1 - 0.8^k), it is interpolated on the log axis, seed by seed. The difference is the mean over these
sparsities of (mean over seeds of one - mean over seeds of the other). Its standard error follows from the spread over
seeds: the standard deviation pooled over all curves and sparsities of the study with at least two seeds.

A difference of more than two standard errors is told apart from 0; a smaller one is not. Without two seeds anywhere
nothing can be told. A claim that something brings no accuracy holds if the difference is below its margin by two
standard errors, and does not hold if it is above the margin, and above 0 by two standard errors. Multiply-adds are
compared as a ratio at equal sparsity; a difference below 2 % is none.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final, Literal

from .points import Point

__all__ = [
    "CANNOT_TELL",
    "DOES_NOT_HOLD",
    "HOLDS",
    "Answer",
    "Better",
    "Claim",
    "NoBetter",
    "Verdict",
    "judge",
]

Answer = Literal["holds", "does not hold", "cannot be told at this budget"]
HOLDS: Final = "holds"
DOES_NOT_HOLD: Final = "does not hold"
CANNOT_TELL: Final = "cannot be told at this budget"


@dataclass(frozen=True)
class Better:
    """One curve is better than another: more accurate, or with fewer multiply-adds."""

    one: str
    other: str
    at: tuple[float, ...] | None = None  # sparsities; None: all from 80 % on
    macs: bool = False


@dataclass(frozen=True)
class NoBetter:
    """One curve is not more accurate than another by more than a margin."""

    one: str
    other: str
    margin: float  # as a fraction
    at: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Claim:
    """A sentence that holds if all its comparisons do."""

    sentence: str
    comparisons: Sequence["Better | NoBetter"]
    network: str = "resnet20"  # the paper's setting


@dataclass(frozen=True)
class Verdict:
    sentence: str
    answer: Answer
    numbers: str


FROM = 0.8  # sparsities below are not what the paper is about


class _Cells:
    """Accuracies by curve, sparsity and seed, and their spread over seeds."""

    def __init__(self, points: Iterable[Point]) -> None:
        self.values: dict[str, dict[float, list[Point]]] = defaultdict(lambda: defaultdict(list))
        for point in points:
            self.values[point.method][round(point.sparsity, 4)].append(point)
        groups = [
            [point.accuracy for point in cell]
            for curve in self.values.values()
            for cell in curve.values()
            if len(cell) > 1
        ]
        freedom = sum(len(group) - 1 for group in groups)
        pooled = sum(variance(group) * (len(group) - 1) for group in groups)
        self.deviation = math.sqrt(pooled / freedom) if freedom else None

    def common(self, one: str, other: str, at: tuple[float, ...] | None) -> list[float]:
        """Return the sparsities at which two curves can be compared: those of the one with fewer points."""
        fewer = min((self.values[one], self.values[other]), key=len)
        chosen = [s for s in sorted(fewer) if (s >= FROM if at is None else s in at)]
        return [s for s in chosen if self.accuracies(one, s) and self.accuracies(other, s)]

    def accuracies(self, name: str, sparsity: float) -> list[float]:
        """Return the accuracies of a curve at a sparsity, one per seed; interpolated where it has no point."""
        curve = self.values[name]
        if sparsity in curve:
            return [point.accuracy for point in curve[sparsity]]
        below = max((s for s in curve if s < sparsity), default=None)
        above = min((s for s in curve if s > sparsity), default=None)
        if below is None or above is None:
            return []
        low, high, here = (math.log(1 - s) for s in (below, above, sparsity))
        share = (here - low) / (high - low)
        seeds = {point.seed: point.accuracy for point in curve[above]}
        return [
            point.accuracy + share * (seeds[point.seed] - point.accuracy)
            for point in curve[below]
            if point.seed in seeds
        ]

    def difference(self, one: str, other: str, sparsities: Sequence[float]) -> tuple[float, float | None]:
        """Return the mean difference of accuracy and its standard error."""
        pairs = [(self.accuracies(one, s), self.accuracies(other, s)) for s in sparsities]
        found = fmean(fmean(first) - fmean(second) for first, second in pairs)
        if self.deviation is None:
            return found, None
        parts = sum(1 / len(first) + 1 / len(second) for first, second in pairs)
        return found, self.deviation * math.sqrt(parts) / len(sparsities)


def judge(claim: Claim, points: Iterable[Point]) -> Verdict:
    """Return what our points of one setting say about a claim."""
    cells = _Cells(points)
    answers: list[Answer] = []
    numbers = []
    for comparison in claim.comparisons:
        answer, text = _compare(cells, comparison)
        answers.append(answer)
        numbers.append(text)
    order: tuple[Answer, ...] = (DOES_NOT_HOLD, CANNOT_TELL, HOLDS)
    return Verdict(claim.sentence, min(answers, key=order.index), "; ".join(numbers))


def _compare(cells: _Cells, comparison: Better | NoBetter) -> tuple[Answer, str]:
    one, other = comparison.one, comparison.other
    sparsities = cells.common(one, other, comparison.at)
    missing = [name for name in (one, other) if not cells.values[name]]
    if isinstance(comparison, Better) and comparison.macs:
        sparsities = [s for s in sparsities if s in cells.values[one] and s in cells.values[other]]
    if not sparsities:
        return (
            CANNOT_TELL,
            f"no runs of {' and '.join(missing)}" if missing else f"{one} and {other} never meet",
        )
    if isinstance(comparison, Better) and comparison.macs:
        return _compare_macs(cells, comparison, sparsities)
    difference, error = cells.difference(one, other, sparsities)
    shown = f"{one} - {other}: {100 * difference:+.2f}"
    shown += " points" if error is None else f" ± {200 * error:.2f} points"
    shown += f" at {_percents(sparsities)}"
    if error is None:
        return CANNOT_TELL, f"{shown}, one seed"
    if isinstance(comparison, NoBetter):
        is_within = difference + 2 * error < comparison.margin
        is_better = difference - 2 * error > 0 and difference > comparison.margin
        shown += f" (margin {100 * comparison.margin:g})"
    else:
        is_within, is_better = difference > 2 * error, difference < -2 * error
    return HOLDS if is_within else DOES_NOT_HOLD if is_better else CANNOT_TELL, shown


def _compare_macs(cells: _Cells, comparison: Better, sparsities: Sequence[float]) -> tuple[Answer, str]:
    def total(name: str) -> float:
        return fmean(fmean(p.macs or 0 for p in cells.values[name][s]) for s in sparsities)

    ratio = total(comparison.one) / total(comparison.other)
    answer: Answer = HOLDS if ratio < 0.98 else DOES_NOT_HOLD if ratio > 1.02 else CANNOT_TELL
    return (
        answer,
        f"{comparison.one} has {ratio:.2f} times the MACs of {comparison.other} at {_percents(sparsities)}",
    )


def _percents(sparsities: Sequence[float]) -> str:
    return ", ".join(f"{100 * s:g}" for s in sparsities) + " %"
