"""Verdicts: what our points say about a sentence of the paper.

The rule. Two curves are compared at the sparsities of the one with fewer points, from 80 % on. Where the other has no
point (cycles end at 1 - 0.8^k), it is interpolated on the log axis, seed by seed. The difference is the mean over these
sparsities of (mean over seeds of one - mean over seeds of the other). Its standard error follows from the spread over
seeds: each seed has one mean over these sparsities, because its points are not independent (cycles contain each other),
and the standard deviation of these means is pooled over all curves of the study with at least two seeds there. If there
is none, the spread of the study's single points from 80 % on is taken instead.

A difference of more than two standard errors (the number behind ±) is told apart from 0; a smaller one is not. Without
two seeds anywhere nothing can be told. A claim that something brings no accuracy holds if the difference is below its
margin by two standard errors, and does not hold if it is above the margin, and above 0 by two standard errors.
Multiply-adds are compared as a ratio at equal sparsity; a difference below 2 % is none. For text a difference is bits
per character saved in place of accuracy gained.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final, Literal

from ...training.tasks import Score
from .points import Point, common_task

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
    """One curve is better than another: in its score, or with fewer multiply-adds."""

    one: str
    other: str
    at: tuple[float, ...] | None = None  # sparsities; None: all from 80 % on
    macs: bool = False


@dataclass(frozen=True)
class NoBetter:
    """One curve is not better than another by more than a margin."""

    one: str
    other: str
    margin: float  # as the score is recorded: accuracy as a fraction
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
    """Points by curve and sparsity, and the spread of their scores over seeds."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.score = common_task(points).score
        self.values: dict[str, dict[float, list[Point]]] = defaultdict(lambda: defaultdict(list))
        for point in points:
            self.values[point.method][round(point.sparsity, 4)].append(point)

    def common(self, one: str, other: str, at: tuple[float, ...] | None) -> list[float]:
        """Return the sparsities at which two curves can be compared: those of the one with fewer points."""
        fewer = min((self.values[one], self.values[other]), key=len)
        chosen = [s for s in sorted(fewer) if (s >= FROM if at is None else s in at)]
        return [s for s in chosen if self.scores(one, s) and self.scores(other, s)]

    def scores(self, name: str, sparsity: float) -> dict[int | None, float]:
        """Return the scores of a curve at a sparsity by seed; interpolated where it has no point."""
        curve = self.values[name]
        if sparsity in curve:
            return {point.seed: point.score for point in curve[sparsity]}
        below = max((s for s in curve if s < sparsity), default=None)
        above = min((s for s in curve if s > sparsity), default=None)
        if below is None or above is None:
            return {}
        low, high, here = (math.log(1 - s) for s in (below, above, sparsity))
        share = (here - low) / (high - low)
        first, second = self.scores(name, below), self.scores(name, above)
        return {seed: first[seed] + share * (second[seed] - first[seed]) for seed in first if seed in second}

    def difference(self, one: str, other: str, sparsities: Sequence[float]) -> tuple[float, float | None]:
        """Return by how much one curve is better, in the mean, and the standard error of that."""
        pairs = [(self.scores(one, s), self.scores(other, s)) for s in sparsities]
        found = fmean(
            self.score.gain(fmean(first.values()), fmean(second.values())) for first, second in pairs
        )
        deviation = self._deviation(sparsities)
        if deviation is None:
            return found, None
        fewest = (min(map(len, scores)) for scores in zip(*pairs, strict=True))
        return found, deviation * math.sqrt(sum(1 / seeds for seeds in fewest))

    def _deviation(self, sparsities: Sequence[float]) -> float | None:
        """Return the standard deviation over seeds of a mean over these sparsities; None if there is no second seed."""
        means = _pooled_deviation(self._seed_means(name, sparsities) for name in self.values)
        if means is not None:
            return means
        cells = (cell for curve in self.values.values() for s, cell in curve.items() if s >= FROM)
        return _pooled_deviation([point.score for point in cell] for cell in cells)

    def _seed_means(self, name: str, sparsities: Sequence[float]) -> list[float]:
        """Return the mean over these sparsities of each seed that has all of them."""
        found = [self.scores(name, s) for s in sparsities]
        return [
            fmean(each[seed] for each in found) for seed in found[0] if all(seed in each for each in found)
        ]


def _pooled_deviation(groups: Iterable[Sequence[float]]) -> float | None:
    several = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    return math.sqrt(sum(variance(g) * (len(g) - 1) for g in several) / freedom) if freedom else None


def judge(claim: Claim, points: Iterable[Point]) -> Verdict:
    """Return what our points of one setting say about a claim."""
    cells = _Cells([*points])
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
    score = cells.score
    shown = f"{_difference(score, one, other)}: {score.factor * difference:+.{score.digits}f}"
    shown += "" if error is None else f" ± {2 * score.factor * error:.{score.digits}f}"
    shown += f" {score.step}"
    shown += f" at {_percents(sparsities)}"
    if error is None:
        return CANNOT_TELL, f"{shown}, one seed"
    if isinstance(comparison, NoBetter):
        is_within = difference + 2 * error < comparison.margin
        is_better = difference - 2 * error > 0 and difference > comparison.margin
        shown += f" (margin {score.factor * comparison.margin:g})"
    else:
        is_within, is_better = difference > 2 * error, difference < -2 * error
    return HOLDS if is_within else DOES_NOT_HOLD if is_better else CANNOT_TELL, shown


def _difference(score: Score, one: str, other: str) -> str:
    """Return the two curves in the order in which a positive difference is a gain."""
    return f"{one} - {other}" if score.is_higher_better else f"{other} - {one}"


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
