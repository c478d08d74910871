"""A run in cycles: accuracy over sparsity, as a chart and as a table."""

import math

from ..results import Record, Run
from .chart import Chart, Series, is_number
from .content import Table
from .formats import MISSING, count, duration, percent, short
from .scale import Scale, percents

__all__ = ["cycle_chart", "cycle_table"]

MOST_LABELS = 8


def cycle_chart(run: Run) -> Chart | None:
    """Return the accuracies of the finished cycles; None while there is none.

    Every cycle is one step to the right: each keeps the same part of the weights, so this is a logarithmic axis of the
    active weights, as in the paper's figures.
    """
    done = [(number, cycle.summary) for number, cycle in enumerate(run.cycles) if cycle.summary]
    if not done:
        return None
    numbers = [number for number, _ in done]
    validation = Series("validation", numbers, [_accuracy(one, "validation") for _, one in done], "b")
    test = Series("test", numbers, [_accuracy(one, "test") for _, one in done])
    last = max(1, numbers[-1])
    every = math.ceil((last + 1) / MOST_LABELS)
    ticks = [number for number in numbers if number % every == 0]
    labels = tuple(f"{100 * (done[number][1].get('target') or 0.0):.3g}" for number in ticks)
    return Chart(
        "cycles",
        "Accuracy of the cycles (%)",
        "Accuracy on the validation and the test pictures of the best model of every cycle, over its sparsity.",
        (validation, test),
        percents,
        lambda value: f"{value:.2f}",
        axis=Scale(0.0, float(last), tuple(map(float, ticks)), labels),
        unit="cycle",
        axis_title="sparsity of the cycle (%)",
    )


def cycle_table(run: Run) -> Table:
    """The figures of every cycle that has begun."""
    head = (
        "cycle",
        "sparsity %",
        "test acc. %",
        "val. acc. %",
        "best epoch",
        "active parameters",
        "MACs",
        "training",
    )
    rows = [_cells(number, cycle) for number, cycle in enumerate(run.cycles)]
    return Table((*head, "folder"), rows)


def _cells(number: int, cycle: Run) -> tuple[str, ...]:
    summary = cycle.summary or {}
    asked = cycle.target or 0.0
    return (
        str(number),
        _hundredths(summary.get("sparsity", asked)),
        _hundredths((summary.get("test") or {}).get("accuracy")),
        _hundredths((summary.get("validation") or {}).get("accuracy")),
        count(summary.get("best_epoch")),
        count(summary.get("active_parameters")),
        short(summary.get("sparse_macs")),
        duration(summary["seconds"]) if "seconds" in summary else f"{len(cycle.epochs)} epochs so far",
        cycle.path.name,
    )


def _accuracy(summary: Record | None, split: str) -> float | None:
    accuracy = ((summary or {}).get(split) or {}).get("accuracy")
    return 100 * accuracy if accuracy is not None and is_number(accuracy) else None


def _hundredths(fraction: float | None) -> str:
    return MISSING if fraction is None else percent(fraction)[:-2] if fraction else "0"
