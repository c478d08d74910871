"""A report as text: one line per layer, the totals, and what the numbers mean."""

from collections import Counter
from typing import TYPE_CHECKING

from ..tables import text_table
from .macs import CONVENTION

if TYPE_CHECKING:
    from .report import LayerRow, Report

__all__ = ["report_text"]

HEAD = (
    "layer",
    "shape",
    "weights",
    "zeros",
    "sparsity %",
    "target %",
    "threshold",
    "MMACs dense",
    "MMACs sparse",
    "empty filters",
)
NO_DATA = "-"


def report_text(report: "Report") -> str:
    """Return the table and the lines below it."""
    lines = [_layer_cells(row) for row in report.rows]
    filled = [i for i in range(len(HEAD)) if any(line[i] != NO_DATA for line in lines)]
    if report.other_macs:
        other = _mega(report.other_macs)
        lines.append(["everything else", *[""] * 6, other, other, ""])
    lines.append(_total_cells(report))
    kept = [[line[i] for i in filled] for line in lines]
    table = text_table([HEAD[i] for i in filled], kept, left=(0, 1))
    return "\n".join([table, "", *_remarks(report)])


def _layer_cells(row: "LayerRow") -> list[str]:
    return [
        row.name,
        "x".join(map(str, row.shape)),
        f"{row.weights:,}",
        f"{row.zeros:,}",
        _percent(row.zeros, row.weights),
        NO_DATA if row.target is None else f"{100 * row.target:.2f}",
        NO_DATA if row.threshold is None else f"{row.threshold:.4g}",
        _mega(row.macs),
        _mega(row.sparse_macs),
        _empty(row.empty_filters, row.filters),
    ]


def _total_cells(report: "Report") -> list[str]:
    return [
        "total",
        "",
        f"{report.weights:,}",
        f"{report.zeros:,}",
        _percent(report.zeros, report.weights),
        ""
        if report.target is None or not all(row.in_budget for row in report.rows)
        else f"{100 * report.target:.2f}",
        "",
        _mega(report.dense_macs),
        _mega(report.sparse_macs),
        _empty(sum(row.empty_filters for row in report.rows), sum(row.filters for row in report.rows)),
    ]


def _remarks(report: "Report") -> list[str]:
    layers = "1 layer" if len(report.rows) == 1 else f"{len(report.rows)} layers"
    target = "" if report.target is None else f", target {100 * report.target:.2f} %"
    step = "" if report.step is None else f", step {report.step:,}"
    percent = _percent(report.zeros, report.weights)
    alone = [row for row in report.rows if not row.in_budget]
    if alone:
        zeros = report.zeros - sum(row.zeros for row in alone)
        weights = report.weights - sum(row.weights for row in alone)
        common = (
            f", without the layers that have a target of their own {_percent(zeros, weights)} %"
            if weights
            else ""
        )
        target = f"{common}{target}" if weights else ""
    remarks = [
        f"Sparsity: {percent} % of {report.weights:,} weights in {layers}{target}{step}.",
        f"Other parameters (biases, norms, layers left dense): {report.other_parameters:,}.",
    ]
    if report.dense_macs is not None:
        shape = "" if report.input_shape is None else f" Counted for the input {report.input_shape}."
        remarks.append(f"MACs: {CONVENTION}.{shape}")
        remarks.append("Sparse MACs are theoretical: a dense runtime multiplies by the zeros as well.")
    if report.uncounted:
        remarks.append(f"Not counted: {'; '.join(report.uncounted)}.")
    if report.skipped:
        reasons = Counter(reason for _, reason in report.skipped)
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.items())
        remarks.append(f"Weights left dense: {len(report.skipped)} ({listed}).")
    return remarks


def _mega(macs: int | None) -> str:
    return NO_DATA if macs is None else f"{macs / 1e6:,.3f}"


def _empty(empty: int, filters: int) -> str:
    return f"{empty:,} of {filters:,}" if empty else "0"


def _percent(zeros: int, weights: int) -> str:
    """100.00 and 0.00 are kept for "all" and "none": one survivor among a million is worth knowing."""
    text = f"{100 * zeros / weights:.2f}" if weights else "0.00"
    if text == "100.00" and zeros < weights:
        return ">99.99"
    if text == "0.00" and zeros:
        return "<0.01"
    return text
