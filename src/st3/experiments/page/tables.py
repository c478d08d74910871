"""The numbers of the charts as tables."""

from typing import Any

from ...training.tasks import Score
from ..results import Record, Run
from .content import Table
from .formats import MISSING, count, percent_cell, real, score_cell, short

__all__ = ["epoch_table", "layer_rows", "layer_table", "time_table"]

MOST_COLUMNS = 10


def epoch_table(run: Run) -> Table:
    """Return the metrics of every epoch; empty columns are left out."""
    twins = {epoch["epoch"]: epoch for epoch in run.twin.epochs} if run.twin else {}
    score = run.task.score
    head: tuple[str, ...] = (
        "epoch",
        f"train {score.head}",
        "train loss",
        f"val. {score.head}",
        "val. loss",
        f"dense val. {score.head}",
        "dense val. loss",
    )
    head += ("rate", "sparsity %", "asked %", "threshold", "zeroed", "revived", "grad. norm", "seconds")
    rows = [_epoch_cells(score, epoch, twins.get(epoch["epoch"], {})) for epoch in run.epochs]
    kept = [i for i in range(len(head)) if any(row[i] != MISSING for row in rows)]
    return Table(tuple(head[i] for i in kept), [tuple(row[i] for i in kept) for row in rows])


def _epoch_cells(score: Score, epoch: Record, twin: Record) -> tuple[str, ...]:
    train, validation, other = (
        part or {} for part in (epoch.get("train"), epoch.get("validation"), twin.get("validation"))
    )
    switches = epoch.get("switches") or {}
    return (
        f"{epoch['epoch']}{' (best so far)' if epoch.get('is_best') else ''}",
        score_cell(score, train.get(score.name)),
        real(train.get("loss")),
        score_cell(score, validation.get(score.name)),
        real(validation.get("loss")),
        score_cell(score, other.get(score.name)),
        real(other.get("loss")),
        real(epoch.get("rate")),
        percent_cell(epoch.get("sparsity")),
        percent_cell(epoch.get("sparsity_asked")),
        real(epoch.get("threshold")),
        count(switches.get("zeroed")),
        count(switches.get("revived")),
        real(epoch.get("gradient_norm")),
        real(epoch.get("seconds")),
    )


def layer_rows(run: Run) -> list[dict[str, Any]]:
    """Return the layers of the final report or, while there is none, of the last epoch (without MACs)."""
    report = (run.summary or {}).get("report") or {}
    if report.get("layers"):
        return list(report["layers"])
    return [{"name": name, **layer} for name, layer in run.layers[-1]["layers"].items()] if run.layers else []


def layer_table(run: Run) -> Table:
    head = (
        "layer",
        "shape",
        "weights",
        "zeros",
        "sparsity %",
        "threshold",
        "MACs dense",
        "MACs sparse",
        "empty filters",
    )
    layers = layer_rows(run)
    rows = [_layer_cells(layer) for layer in layers]
    columns = range(len(head)) if run.method else (0, 1, 2, 6)  # a dense model has no zeros to count
    kept = [i for i in columns if any(row[i] != MISSING for row in rows)]
    total = _total_cells(layers)
    return Table(
        tuple(head[i] for i in kept),
        [tuple(row[i] for i in kept) for row in rows],
        tuple(total[i] for i in kept) if rows else None,
        left=1 + (1 in kept),
    )


def _layer_cells(layer: dict[str, Any]) -> tuple[str, ...]:
    filters = layer.get("filters")
    return (
        layer["name"],
        "×".join(map(str, layer["shape"])) if "shape" in layer else MISSING,
        count(layer["weights"]),
        count(layer["zeros"]),
        percent_cell(layer["zeros"] / layer["weights"] if layer["weights"] else None),
        real(layer.get("threshold")),
        short(layer.get("dense_macs")),
        short(layer.get("sparse_macs")),
        f"{layer['empty_filters']} of {filters}" if filters and "empty_filters" in layer else MISSING,
    )


def _total_cells(layers: list[dict[str, Any]]) -> tuple[str, ...]:
    weights, zeros = (sum(layer[key] for layer in layers) for key in ("weights", "zeros"))
    dense, sparse = (sum(layer.get(key) or 0 for layer in layers) for key in ("dense_macs", "sparse_macs"))
    empty, filters = (sum(layer.get(key) or 0 for layer in layers) for key in ("empty_filters", "filters"))
    share = percent_cell(zeros / weights if weights else None)
    return (
        "total",
        "",
        count(weights),
        count(zeros),
        share,
        "",
        short(dense),
        short(sparse),
        f"{empty} of {filters}",
    )


def time_table(run: Run) -> Table:
    """Return the numbers of the heat map at up to ten epochs, evenly spaced, the last one included."""
    if not run.layers:
        return Table((), [])
    last = len(run.layers) - 1
    records = [
        run.layers[i] for i in sorted({round(last * n / (MOST_COLUMNS - 1)) for n in range(MOST_COLUMNS)})
    ]
    names = list(records[-1]["layers"])
    rows = [(name, *(_cell(record["layers"].get(name)) for record in records)) for name in names]
    return Table(("layer", *(f"epoch {record['epoch']}" for record in records)), rows)


def _cell(layer: dict[str, Any] | None) -> str:
    return percent_cell(layer["zeros"] / layer["weights"]) if layer and layer["weights"] else MISSING
