"""A score: the number that says how good a model is, and how people read it."""

import math
from dataclasses import dataclass

__all__ = ["Score"]


@dataclass(frozen=True)
class Score:
    """A mean over predictions: its name in records, its words, and which of two values is better."""

    name: str  # its key in records
    title: str  # in a sentence, such as "accuracy"
    head: str  # of a column, with its unit
    step: str  # what a difference is counted in, such as "points"
    unit: str = ""  # behind a value, such as "%"
    factor: float = 1.0  # from the value in records to the one that is shown
    digits: int = 3  # behind the point
    is_higher_better: bool = True
    most: float | None = None  # the largest value there can be

    @property
    def axis(self) -> str:
        """The title of an axis: "accuracy (%)"."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def gain(self, value: float, other: float) -> float:
        """Return by how much a value is better than another one; below 0 if it is worse."""
        return value - other if self.is_higher_better else other - value

    def is_better(self, value: float, best: float | None) -> bool:
        """Return whether a value is better than the best so far, if there is one; NaN never is."""
        return not math.isnan(value) and (best is None or self.gain(value, best) > 0)

    def show(self, value: float, digits: int | None = None) -> str:
        """Return a value with its unit.

        >>> Score("hits", "hits", "hits %", "points", "%", 100, 1).show(0.625)
        '62.5 %'
        """
        number = f"{self.factor * value:.{self.digits if digits is None else digits}f}"
        return f"{number} {self.unit}" if self.unit else number

    def show_step(self, difference: float) -> str:
        """Return a difference without its sign, in the words for it: 0.25 points."""
        return f"{abs(self.factor * difference):.{self.digits}f} {self.step}"
