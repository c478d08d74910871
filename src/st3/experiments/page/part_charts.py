"""A run that consists of several parts: their scores over sparsity, as a chart and as a table."""

import math

from ...training.tasks import Score
from ..results import Record, Run
from .chart import Chart, Series, is_number
from .content import Table
from .formats import count, duration, percent_cell, score_cell, short
from .scale import Scale, score_scale

__all__ = ["part_chart", "part_table"]

MOST_LABELS = 8


def part_chart(run: Run) -> Chart | None:
    """Return a chart of the score of every finished part; None if there is none.

    Every part is one step to the right. If each prunes the same part of the remaining weights, as in LRR, this is a
    logarithmic axis of the active weights, as in the paper's figures.
    """
    done = [(number, part.summary) for number, part in enumerate(run.parts) if part.summary]
    if not run.is_sequence or not done:
        return None
    kind = run.protocol.kind
    numbers, score = [number for number, _ in done], run.task.score
    validation = Series("validation", numbers, [_shown(score, one, "validation") for _, one in done], "b")
    test = Series("test", numbers, [_shown(score, one, "test") for _, one in done])
    title = score.title.capitalize()
    last = max(1, numbers[-1])
    every = math.ceil((last + 1) / MOST_LABELS)
    ticks = [number for number in numbers if number % every == 0]
    labels = tuple(f"{100 * (done[number][1].get('target') or 0.0):.3g}" for number in ticks)
    return Chart(
        f"{kind}s",
        f"{title} of the {kind}s{f' ({score.unit})' if score.unit else ''}",
        f"{title} of the best model of every {kind} in validation and test, over its sparsity.",
        (validation, test),
        score_scale(score),
        lambda value: f"{value:.{score.digits}f}",
        axis=Scale(0.0, float(last), tuple(map(float, ticks)), labels),
        unit=kind,
        axis_title=f"sparsity of the {kind} (%)",
    )


def part_table(run: Run) -> Table:
    """Return the metrics of every part that has begun, if the run consists of parts."""
    head = (
        run.protocol.kind,
        "sparsity %",
        f"test {run.task.score.head}",
        f"val. {run.task.score.head}",
        "best epoch",
        "active parameters",
        "MACs",
        "training",
    )
    score = run.task.score
    rows = [_cells(score, number, part) for number, part in enumerate(run.parts)] if run.is_sequence else []
    return Table((*head, "folder"), rows)


def _cells(score: Score, number: int, part: Run) -> tuple[str, ...]:
    summary = part.summary or {}
    asked = part.target or 0.0
    return (
        str(number),
        percent_cell(summary.get("sparsity", asked)),
        score_cell(score, (summary.get("test") or {}).get(score.name)),
        score_cell(score, (summary.get("validation") or {}).get(score.name)),
        count(summary.get("best_epoch")),
        count(summary.get("active_parameters")),
        short(summary.get("sparse_macs")),
        duration(summary["seconds"]) if "seconds" in summary else f"{len(part.epochs)} epochs so far",
        part.path.name,
    )


def _shown(score: Score, summary: Record | None, split: str) -> float | None:
    value = ((summary or {}).get(split) or {}).get(score.name)
    return score.factor * value if value is not None and is_number(value) else None
