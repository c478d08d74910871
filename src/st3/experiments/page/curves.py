"""The curves of a run over its epochs."""

from collections.abc import Sequence
from typing import Any

from ..results import Record, Run
from .chart import Chart, Series, is_number
from .formats import count, real
from .scale import Scale, counting, linear, logarithmic, percents, score_scale

__all__ = ["curves"]


def curves(run: Run) -> list[Chart]:
    """Return the charts for which the run has numbers, the most important first."""
    if not run.epochs:
        return []
    charts = [_score(run), _loss(run), _sparsity(run), _rate(run), _threshold(run), _switches(run)]
    return [chart for chart in charts if any(series.points() for series in chart.series)]


def _score(run: Run) -> Chart:
    score, best = run.task.score, run.best
    value = _pick(best, "validation", score.name) if best else None
    ring = None
    if best and value is not None and is_number(value):
        ring = (best["epoch"], score.factor * value, f"best, epoch {best['epoch']}")
    return Chart(
        score.name,
        score.axis.capitalize(),
        f"{score.title.capitalize()} on the training and the validation {run.task.examples} after each epoch.",
        _splits(run, score.name, score.factor),
        score_scale(score),
        lambda value: f"{value:.{score.digits}f}",
        ring,
        _last(run),
    )


def _loss(run: Run) -> Chart:
    about = f"Mean loss on the training and the validation {run.task.examples} after each epoch."
    return Chart("loss", "Loss", about, _splits(run, "loss"), linear, real, None, _last(run))


def _sparsity(run: Run) -> Chart:
    asked = _step_series(run, "sparsity_asked", "asked by the ramp", "band", 100)
    counted = _series("counted zeros", run.epochs, "sparsity", factor=100)
    about = "Sparsity that the ramp asks for, and the zeros counted after each epoch."
    return Chart(
        "sparsity", "Sparsity (%)", about, (asked, counted), percents, lambda p: f"{p:.2f}", None, _last(run)
    )


def _rate(run: Run) -> Chart:
    rate = _step_series(run, "rate", "learning rate")
    about = "Learning rate of the optimizer over training."
    return Chart("rate", "Learning rate", about, (rate,), _rate_scale, real, None, _last(run))


def _rate_scale(rates: list[float]) -> Scale:
    """Return a logarithmic axis for a few levels, each a fraction of the last; a linear one for smooth curves."""
    is_levels = len(set(rates)) <= 6 and min(rates) > 0 and max(rates) >= 5 * min(rates)
    return logarithmic(rates) if is_levels else linear(rates)


def _threshold(run: Run) -> Chart:
    threshold = _step_series(run, "threshold", "largest of all layers")
    about = "The threshold at or below which weights are zeroed, the largest of all layers."
    return Chart("threshold", "Threshold", about, (threshold,), linear, real, None, _last(run))


def _switches(run: Run) -> Chart:
    zeroed = _series("zeroed", run.epochs, "switches", "zeroed", colour="b")
    revived = _series("revived", run.epochs, "switches", "revived")
    about = "Weights that changed between active and zeroed since the end of the previous epoch."
    title = "Weight switches per epoch"
    return Chart(
        "switches", title, about, (zeroed, revived), counting, lambda n: count(round(n)), None, _last(run)
    )


def _splits(run: Run, metric: str, factor: float = 1.0) -> tuple[Series, ...]:
    """Return training and validation curves; those of the dense twin dashed, as far as this run has come."""
    series = [
        _series("train", run.epochs, "train", metric, colour="b", factor=factor),
        _series("validation", run.epochs, "validation", metric, factor=factor),
    ]
    if run.twin:
        twin = [epoch for epoch in run.twin.epochs if epoch["epoch"] <= _last(run)]
        series += [
            _series(f"dense {split}", twin, split, metric, colour=colour, factor=factor, is_dashed=True)
            for split, colour in (("train", "b"), ("validation", "a"))
        ]
    return tuple(series)


def _step_series(run: Run, key: str, name: str, colour: Any = "a", factor: float = 1.0) -> Series:
    """Return a curve from the records of steps, or of epochs if there are none."""
    has_steps = any(is_number(step.get(key)) for step in run.steps)
    steps = [step for step in run.steps if step["epoch"] <= _last(run)]
    return _series(name, steps if has_steps else run.epochs, key, colour=colour, factor=factor)


def _series(
    name: str,
    records: Sequence[Record],
    *keys: str,
    colour: Any = "a",
    factor: float = 1.0,
    is_dashed: bool = False,
) -> Series:
    values = [_pick(record, *keys) for record in records]
    y = [factor * value if is_number(value) else None for value in values]
    return Series(name, [record["epoch"] for record in records], y, colour, is_dashed)


def _pick(record: Record, *keys: str) -> Any:
    """Return record[key][key]..., or None if one of them is missing."""
    found: Any = record
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _last(run: Run) -> float:
    return float(run.epochs[-1]["epoch"])
