"""A run that consists of several parts: their accuracy over sparsity, as a chart and as a table."""

import math

from ..results import Record, Run
from .chart import Chart, Series, is_number
from .content import Table
from .formats import count, duration, percent_cell, short
from .scale import Scale, percents

__all__ = ["part_chart", "part_table"]

MOST_LABELS = 8


def part_chart(run: Run) -> Chart | None:
    """Return a chart of the accuracy of every finished part; None if there is none.

    Every part is one step to the right. If each prunes the same part of the remaining weights, as in LRR, this is a
    logarithmic axis of the active weights, as in the paper's figures.
    """
    done = [(number, part.summary) for number, part in enumerate(run.parts) if part.summary]
    if not run.is_sequence or not done:
        return None
    kind = run.protocol.kind
    numbers = [number for number, _ in done]
    validation = Series("validation", numbers, [_accuracy(one, "validation") for _, one in done], "b")
    test = Series("test", numbers, [_accuracy(one, "test") for _, one in done])
    last = max(1, numbers[-1])
    every = math.ceil((last + 1) / MOST_LABELS)
    ticks = [number for number in numbers if number % every == 0]
    labels = tuple(f"{100 * (done[number][1].get('target') or 0.0):.3g}" for number in ticks)
    return Chart(
        f"{kind}s",
        f"Accuracy of the {kind}s (%)",
        f"Accuracy of the best model of every {kind} on the validation and test pictures, over its sparsity.",
        (validation, test),
        percents,
        lambda value: f"{value:.2f}",
        axis=Scale(0.0, float(last), tuple(map(float, ticks)), labels),
        unit=kind,
        axis_title=f"sparsity of the {kind} (%)",
    )


def part_table(run: Run) -> Table:
    """Return the metrics of every part that has begun, if the run consists of parts."""
    head = (
        run.protocol.kind,
        "sparsity %",
        "test acc. %",
        "val. acc. %",
        "best epoch",
        "active parameters",
        "MACs",
        "training",
    )
    rows = [_cells(number, part) for number, part in enumerate(run.parts)] if run.is_sequence else []
    return Table((*head, "folder"), rows)


def _cells(number: int, part: Run) -> tuple[str, ...]:
    summary = part.summary or {}
    asked = part.target or 0.0
    return (
        str(number),
        percent_cell(summary.get("sparsity", asked)),
        percent_cell((summary.get("test") or {}).get("accuracy")),
        percent_cell((summary.get("validation") or {}).get("accuracy")),
        count(summary.get("best_epoch")),
        count(summary.get("active_parameters")),
        short(summary.get("sparse_macs")),
        duration(summary["seconds"]) if "seconds" in summary else f"{len(part.epochs)} epochs so far",
        part.path.name,
    )


def _accuracy(summary: Record | None, split: str) -> float | None:
    accuracy = ((summary or {}).get(split) or {}).get("accuracy")
    return 100 * accuracy if accuracy is not None and is_number(accuracy) else None
