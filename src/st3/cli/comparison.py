"""What came out: the dense and the sparse model side by side, and where to go from here."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..tables import size_text, text_table

__all__ = ["closing_words", "comparison_table", "cycles_table"]

Summary = Mapping[str, Any]


def comparison_table(summary: Summary, dense: Summary | None = None) -> str:
    """Return the figures of a finished run as a table; beside them those of its dense twin, if there is one."""
    columns = {"dense" if _is_dense(summary) else "sparse": summary}
    if dense is not None:
        columns = {"dense": dense, **columns}
    cells = [_cells(column) for column in columns.values()]
    rows = [[name, *(cell[name] for cell in cells)] for name in cells[0]]
    return text_table(["", *columns], rows)


def cycles_table(summary: Summary) -> str:
    """Return the figures of every cycle as a table: what each pruning has cost."""
    rows = [
        [
            str(cycle["cycle"]),
            f"{100 * cycle['sparsity']:.2f} %",
            f"{100 * cycle['test']['accuracy']:.2f} %",
            f"{100 * cycle['validation']['accuracy']:.2f} %",
            f"{cycle['active_parameters']:,}",
            _count(cycle["sparse_macs"]),
            cycle["folder"],
        ]
        for cycle in summary["cycles"]
    ]
    head = ["cycle", "sparsity", "test accuracy", "validation accuracy", "active parameters"]
    return text_table([*head, "MACs (zeros skipped)", "folder"], rows)


def _is_dense(summary: Summary) -> bool:
    """Tell whether nothing was made sparse; a method without a target is not dense."""
    return summary["target"] is None and summary.get("method", "dense") == "dense"


def _cells(summary: Summary) -> dict[str, str]:
    return {
        "test accuracy": f"{100 * summary['test']['accuracy']:.2f} %",
        "validation accuracy": f"{100 * summary['validation']['accuracy']:.2f} %",
        "sparsity": f"{100 * summary['sparsity']:.2f} %",
        "parameters": f"{summary['parameters']:,}",
        "active parameters": f"{summary['active_parameters']:,}",
        "MACs (zeros skipped)": _count(summary["sparse_macs"]),
        "file": size_text(summary["model_bytes"]),
        "sparse file": _size(summary.get("sparse_model_bytes")),
    }


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _size(count: int | None) -> str:
    return "-" if count is None else size_text(count)


def closing_words(summary: Summary, folder: Path, dense: Summary | None = None) -> str:
    """Return what the table does not say, where everything is, what to try next, and the sparsity achieved."""
    name = shlex.quote(str(folder))
    tested = summary["pictures"]["test"]
    lines = [f"One seed, {tested:,} test pictures: a single one makes {100 / tested:.2g} points of accuracy."]
    if dense is not None:
        lines += [_against(dense, summary)]
    if not summary["report"]["zeros"] and not _is_dense(summary):
        lines += [
            f"No weight is zero: the settings of {summary['method']!r} decide how many are, see its page."
        ]
    elif not _is_dense(summary):
        lines += _what_zeros_bring(summary)
    lines += ["Written", f"  {folder / 'report.html'}  a page to open in a browser"]
    lines += [f"  {folder / summary['model']}  the model"]
    if summary.get("sparse_model") and summary["report"]["zeros"]:
        lines += [f"  {folder / summary['sparse_model']}  the same, without its zeros: st3.load_sparse"]
    lines += [""]
    lines += ["Try next", f"  st3 info {name}  what is in the model, layer by layer"]
    lines += [f"  st3 eval {name}  the accuracy of that file, measured again"]
    if summary["report"]["zeros"]:
        lines += [f"  st3 bench {name}  what its zeros save: st3.engine beside dense runtimes"]
    lines += ["  st3 train --data cifar10 --download --sparsity 0.95", ""]
    report, target = summary["report"], summary["target"]
    nothing = "dense, none was asked for" if _is_dense(summary) else "learned, none was asked for"
    asked = nothing if target is None else f"target {100 * target:.2f} %"
    zeros = f"{report['zeros']:,} of {report['weights']:,} weights are zero"
    return "\n".join([*lines, f"sparsity {100 * summary['sparsity']:.2f} % ({asked}): {zeros}"])


def _against(dense: Summary, sparse: Summary) -> str:
    points = 100 * (sparse["test"]["accuracy"] - dense["test"]["accuracy"])
    if abs(points) < 0.005:
        return "The sparse model is as accurate as its dense twin."
    return (
        f"The sparse model is {abs(points):.2f} points {'above' if points > 0 else 'below'} its dense twin."
    )


def _what_zeros_bring(summary: Summary) -> list[str]:
    lines = ["The plain file is as large as that of a dense model, because it stores the zeros too."]
    small = summary.get("sparse_model_bytes")
    if small is not None and summary["model_bytes"] > 1.01 * small:
        times = f"{summary['model_bytes'] / small:.1f} times smaller"
        lines += [f"{summary['sparse_model']} holds the same model, bit for bit, and is {times}."]
    return [
        *lines,
        "A dense runtime is not faster for them: it multiplies by zeros as well. st3.engine does not.",
        "",
    ]
