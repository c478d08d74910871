"""What the paper reports in numbers: its two tables on ImageNet, and the long run on CIFAR-10.

Of methods by others, the paper copies the values from their own publications. Its "GFLOPS" are millions of
multiply-adds. All other results on CIFAR exist as curves without numbers.
"""

from functools import cache
from pathlib import Path

from .points import Point, read_points

__all__ = ["published_points"]


@cache
def published_points() -> tuple[Point, ...]:
    """Return every published point."""
    return tuple(read_points(Path(__file__).with_name("published.csv")))
