"""A report as text: one line per layer, the totals, and an explanation of the numbers."""

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
    """Return the table and the remarks below it."""
    lines = [_layer_cells(row) for row in report.rows]
    columns = [i for i in range(len(HEAD)) if any(line[i] != NO_DATA for line in lines)]
    if report.other_macs:
        other = _mega(report.other_macs)
        lines.append(["everything else", *[""] * 6, other, other, ""])
    lines.append(_total_cells(report))
    cells = [[line[i] for i in columns] for line in lines]
    table = text_table([HEAD[i] for i in columns], cells, left=(0, 1))
    return "\n".join([table, "", *_remarks(report)])


def _layer_cells(row: "LayerRow") -> list[str]:
    return [
        row.name,
        "x".join(map(str, row.shape)),
        f"{row.numel:,}",
        f"{row.zeros:,}",
        _percent(row.zeros, row.numel),
        NO_DATA if row.target is None else f"{100 * row.target:.2f}",
        NO_DATA if row.threshold is None else f"{row.threshold:.4g}",
        _mega(row.dense_macs),
        _mega(row.sparse_macs),
        _empty(row.empty_filters, row.filters),
    ]


def _total_cells(report: "Report") -> list[str]:
    has_one_target = all(row.in_budget for row in report.rows)
    return [
        "total",
        "",
        f"{report.numel:,}",
        f"{report.zeros:,}",
        _percent(report.zeros, report.numel),
        f"{100 * report.target:.2f}" if has_one_target and report.target is not None else "",
        "",
        _mega(report.dense_macs),
        _mega(report.sparse_macs),
        _empty(sum(row.empty_filters for row in report.rows), sum(row.filters for row in report.rows)),
    ]


def _remarks(report: "Report") -> list[str]:
    layers = "1 layer" if len(report.rows) == 1 else f"{len(report.rows)} layers"
    target = "" if report.target is None else f", target {100 * report.target:.2f} %"
    step = "" if report.step is None else f", step {report.step:,}"
    percent = _percent(report.zeros, report.numel)
    budget = [row for row in report.rows if row.in_budget]
    if len(budget) < len(report.rows):  # the target is that of the layers in the budget alone
        zeros, numel = sum(row.zeros for row in budget), sum(row.numel for row in budget)
        target = (
            f"; {_percent(zeros, numel)} % without the layers that have their own target{target}"
            if numel
            else ""
        )
    remarks = [
        f"Sparsity: {percent} % of {report.numel:,} weights in {layers}{target}{step}.",
        f"Other parameters (biases, norms, layers left dense): {report.other_parameters:,}.",
    ]
    if report.dense_macs is not None:
        shape = "" if report.input_shape is None else f" Counted for the input {report.input_shape}."
        remarks.append(f"MACs: {CONVENTION}.{shape}")
        remarks.append("Sparse MACs are theoretical: a dense runtime also multiplies by the zeros.")
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


def _percent(zeros: int, numel: int) -> str:
    """Return the percentage of zeros; 100.00 and 0.00 mean exactly all and none."""
    text = f"{100 * zeros / numel:.2f}" if numel else "0.00"
    if text == "100.00" and zeros < numel:
        return ">99.99"
    if text == "0.00" and zeros:
        return "<0.01"
    return text
