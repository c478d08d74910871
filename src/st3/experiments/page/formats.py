"""Numbers as people read them."""

import math

from ...training.tasks import Score

__all__ = [
    "bytes_text",
    "count",
    "duration",
    "gap_text",
    "percent",
    "percent_cell",
    "real",
    "score_cell",
    "score_text",
    "short",
]

SPACE = "\N{NO-BREAK SPACE}"
MISSING = "–"


def percent(fraction: float | None, digits: int = 2) -> str:
    """Return a percentage; only a fraction of exactly 1 reads as 100.

    >>> percent(0.9123), percent(0.95, 0), percent(0.999996), percent(None)
    ('91.23\\xa0%', '95\\xa0%', '99.9996\\xa0%', '–')
    """
    if fraction is None:
        return MISSING
    while 0 < fraction < 1 and digits < 9 and float(f"{100 * fraction:.{digits}f}") in (0.0, 100.0):
        digits += 1
    return f"{100 * fraction:.{digits}f}{SPACE}%"


def percent_cell(fraction: float | None) -> str:
    """Return a percentage without the sign, which is in the head of the column.

    >>> percent_cell(0.9123), percent_cell(0.0), percent_cell(None)
    ('91.23', '0.00', '–')
    """
    return percent(fraction).removesuffix(f"{SPACE}%")


def score_text(score: Score, value: float | None) -> str:
    """Return a score with its unit.

    >>> from ...training.tasks import TASKS
    >>> score_text(TASKS["language"].score, 2.0406), score_text(TASKS["classification"].score, 0.9123)
    ('2.041', '91.23\\xa0%')
    """
    if value is None or score.unit == "%":
        return percent(value, score.digits)
    return score.show(value).replace(" ", SPACE)


def score_cell(score: Score, value: float | None) -> str:
    """Return a score without its unit, which is in the head of the column."""
    return score_text(score, value).removesuffix(f"{SPACE}{score.unit}")


def gap_text(score: Score, difference: float) -> str:
    """Return the difference of two scores, with a sign: −0.87 points."""
    return f"{score.factor * difference:+.{score.digits}f}{SPACE}{score.step}".replace("-", "−")


def count(number: int | None) -> str:
    return MISSING if number is None else f"{number:,}"


def real(number: float | None) -> str:
    """Return four significant digits."""
    return MISSING if number is None else f"{number:.4g}"


def short(number: float | None) -> str:
    """Return three significant digits with a unit prefix.

    >>> short(41_250_000), short(999), short(2_500), short(None)
    ('41.2\\xa0M', '999', '2.50\\xa0k', '–')
    """
    if number is None:
        return MISSING
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * factor:
            return f"{number / factor:#.3g}".rstrip(".") + f"{SPACE}{prefix}"
    return f"{number:.3g}"


def bytes_text(number: int | None) -> str:
    return MISSING if number is None else f"{short(number)}B" if number >= 1000 else f"{number}{SPACE}B"


def duration(seconds: float | None) -> str:
    """Return the two largest units.

    >>> duration(4.25), duration(75), duration(7 * 3600 + 59), duration(200_000)
    ('4.2\\xa0s', '1\\xa0min 15\\xa0s', '7\\xa0h 1\\xa0min', '2\\xa0d 8\\xa0h')
    """
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 10:
        return f"{seconds:.2g}{SPACE}s"
    for large, many, small, few in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        rounded = round(seconds / few) * few
        if rounded >= many:
            return f"{rounded // many}{SPACE}{large} {rounded % many // few}{SPACE}{small}"
    return f"{seconds:.0f}{SPACE}s"
