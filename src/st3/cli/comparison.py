"""The end of a run on the terminal: a table of the results, what they mean, what to try next."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..experiments.results import Run
from ..experiments.spec import DENSE
from ..tables import size_text, text_table
from ..training.paths import REPORT
from ..training.tasks import Score, task_of

__all__ = ["closing_words", "comparison_table", "part_table", "result_table"]

Summary = Mapping[str, Any]


def result_table(run: Run) -> str:
    """Return the metrics of a finished run: a row for each of its parts, or a column beside that of its dense twin."""
    assert run.summary is not None
    if run.is_sequence:
        return part_table(run.protocol.kind, {part.path.name: part.summary or {} for part in run.parts})
    return comparison_table(run.summary, None if run.twin is None else run.twin.summary)


def comparison_table(summary: Summary, dense: Summary | None = None) -> str:
    """Return the metrics of a finished run as a table, beside those of its dense twin if there is one."""
    columns = {"dense" if _is_dense(summary) else "sparse": summary}
    if dense is not None:
        columns = {"dense": dense, **columns}
    cells = [_cells(column) for column in columns.values()]
    rows = [[name, *(cell[name] for cell in cells)] for name in cells[0]]
    return text_table(["", *columns], rows)


def part_table(kind: str, summaries: Mapping[str, Summary]) -> str:
    """Return the metrics of several parts, by folder, as a table with a row for each."""
    score = _score(next(iter(summaries.values()), {}))
    head = [
        kind,
        "sparsity",
        f"test {score.title}",
        f"validation {score.title}",
        "active parameters",
        "MACs (zeros skipped)",
    ]
    rows = []
    for number, (folder, summary) in enumerate(summaries.items()):
        cells = _cells(summary)
        rows.append([str(number), *(cells[name] for name in head[1:]), folder])
    return text_table([*head, "folder"], rows)


def _is_dense(summary: Summary) -> bool:
    """Return whether nothing was made sparse; a method without a target is not dense."""
    return summary["target"] is None and summary.get("method", DENSE) == DENSE


def _score(summary: Summary) -> Score:
    return task_of(summary.get("test")).score


def _cells(summary: Summary) -> dict[str, str]:
    score = _score(summary)
    return {
        f"test {score.title}": score.show(summary["test"][score.name]),
        f"validation {score.title}": score.show(summary["validation"][score.name]),
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
    """Return what the table does not show: differences, files, commands to try, and the sparsity achieved."""
    name = shlex.quote(str(folder))
    lines = []
    task = task_of(summary["test"])
    if tested := (summary.get(task.examples) or {}).get("test"):
        lines += [f"One seed, {tested:,} test {task.examples}{task.tell_resolution(tested)}."]
    if dense is not None:
        lines += [_compare_with(dense, summary)]
    if not summary["report"]["zeros"] and not _is_dense(summary):
        lines += [
            f"No weight is zero: how many are depends on the settings of {summary['method']!r}, see its page."
        ]
    elif not _is_dense(summary):
        lines += _explain_zeros(summary)
    lines += ["Written", f"  {folder / REPORT}  a page to open in a browser"]
    lines += [f"  {folder / summary['model']}  the model"]
    if summary.get("sparse_model") and summary["report"]["zeros"]:
        lines += [f"  {folder / summary['sparse_model']}  the same without its zeros: st3.load_sparse"]
    lines += [""]
    lines += ["Try next", f"  st3 info {name}  what is in the model, layer by layer"]
    lines += [f"  st3 eval {name}  measure that file again"]
    if summary["report"]["zeros"]:
        lines += [f"  st3 bench {name}  what its zeros save: st3.engine beside dense runtimes"]
    lines += [f"  {task.next_command.replace('RUN', name)}", ""]
    report, target = summary["report"], summary["target"]
    no_target = "dense" if _is_dense(summary) else "learned, without a target"
    asked = no_target if target is None else f"target {100 * target:.2f} %"
    zeros = f"{report['zeros']:,} of {report['weights']:,} weights are zero"
    return "\n".join([*lines, f"sparsity {100 * summary['sparsity']:.2f} % ({asked}): {zeros}"])


def _compare_with(dense: Summary, sparse: Summary) -> str:
    score = _score(sparse)
    gain = score.gain(sparse["test"][score.name], dense["test"][score.name])
    if abs(score.factor * gain) < 0.5 * 10**-score.digits:
        return "The sparse model is as good as its dense twin."
    return f"The sparse model is {score.show_step(gain)} {'better' if gain > 0 else 'worse'} than its dense twin."


def _explain_zeros(summary: Summary) -> list[str]:
    lines = ["The plain file is as large as that of a dense model, because it stores the zeros too."]
    small = summary.get("sparse_model_bytes")
    if small is not None and summary["model_bytes"] > 1.01 * small:
        times = f"{summary['model_bytes'] / small:.1f} times smaller"
        lines += [f"{summary['sparse_model']} holds the same model, bit for bit, and is {times}."]
    return [
        *lines,
        "Zeros do not make a dense runtime faster: it multiplies by them as well. st3.engine skips them.",
        "",
    ]
