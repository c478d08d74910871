"""The words and key numbers of the page."""

import shlex
from dataclasses import dataclass
from typing import Any

from ...training.sections import flatten
from ..essence import is_circumstance
from ..results import Record, Run
from .formats import MISSING, SPACE, bytes_text, count, duration, gap_text, percent, real, score_text, short

__all__ = ["Table", "headline", "key_numbers", "result_text", "spec_rows", "version_rows"]


@dataclass(frozen=True)
class Table:
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    total: tuple[str, ...] | None = None
    left: int = 1  # how many columns hold words, aligned to the left


def headline(run: Run) -> str:
    text = f"{run.model} on {run.data}, {run.method or 'dense'}"
    if run.target is not None:
        text += f" at {_brief(run.target)} sparsity"
    if run.is_sequence:
        text += f" in {run.planned_parts} {run.protocol.kind}s"
    return f"{text}, {run.part_of}" if run.part_of else text


def result_text(run: Run) -> str:
    """Return the result in a sentence or two, or how far the run has come."""
    if run.summary is None:
        return _progress(run)
    score, test = run.task.score, _score(run, run.summary, "test")
    best = run.summary.get("best_epoch", MISSING)
    result = f"Test {score.title} {score_text(score, test)} with the weights of epoch {best}"
    if run.twin is None:
        return f"{result}."
    twin = _score(run, run.twin.summary or {}, "test")
    if twin is None or test is None:
        return f"{result}. The dense twin is not finished."
    gap = gap_text(score, test - twin)
    return f"{result}; the dense twin reaches {score_text(score, twin)}, a difference of {gap}."


def _progress(run: Run) -> str:
    planned = run.planned_epochs
    done = f"{len(run.epochs)} of {planned} epochs" if planned else f"{len(run.epochs)} epochs"
    best = run.best
    so_far = ""
    if best is not None:
        score = run.task.score
        value = score_text(score, _score(run, best, "validation"))
        so_far = f" Best validation {score.title} so far: {value}, epoch {best['epoch']}."
    return f"Not finished: this page shows {done}. The run is still going, or was interrupted.{so_far}"


def key_numbers(run: Run) -> list[tuple[str, str, str]]:
    """Return (name, value, remark) of the most important numbers that are known."""
    summary, last = run.summary or {}, run.epochs[-1] if run.epochs else {}
    test, best = _part(summary, "test"), run.best or last
    sparsity = summary.get("sparsity", last.get("sparsity")) if run.method else None
    seconds = summary.get("seconds", last.get("seconds"))
    epochs = summary.get("epochs", len(run.epochs))
    validation = _part(summary, "validation") or _part(best, "validation")
    steps = summary.get("steps", last.get("step"))
    score = run.task.score
    numbers = [
        (f"test {score.title}", score_text(score, test.get(score.name)), _loss(test)),
        (f"validation {score.title}", score_text(score, validation.get(score.name)), _loss(validation)),
        _twin_number(run),
        ("sparsity", percent(sparsity), _target(run)),
        _parameters_number(run),
        _macs_number(run, summary),
        ("model file", bytes_text(summary.get("model_bytes")), _sparse_file(summary)),
        (
            "training",
            duration(seconds),
            f"{duration(seconds / epochs)} per epoch" if seconds and epochs else "",
        ),
        ("epochs", count(epochs), f"{count(steps)} steps" if steps else ""),
    ]
    return [number for number in numbers if number and number[1] != MISSING]


def _sparse_file(summary: Record) -> str:
    size = summary.get("sparse_model_bytes")
    return "" if size is None else f"{bytes_text(size)} as a sparse file"


def _parameters_number(run: Run) -> tuple[str, str, str] | None:
    total, active = ((run.summary or {}).get(key) for key in ("parameters", "active_parameters"))
    if run.method is None or active is None:
        return ("parameters", count(total), "")
    return ("active parameters", count(active), f"of {count(total)}")


def _twin_number(run: Run) -> tuple[str, str, str] | None:
    if run.twin is None:
        return None
    score = run.task.score
    ours, twin = (_score(run, r.summary or {}, "test") for r in (run, run.twin))
    if ours is None or twin is None:
        return ("dense twin", f"{len(run.twin.epochs)} epochs", "so far")
    return ("against the dense twin", gap_text(score, ours - twin), f"twin: {score_text(score, twin)}")


def _macs_number(run: Run, summary: Record) -> tuple[str, str, str] | None:
    dense, sparse = summary.get("dense_macs"), summary.get("sparse_macs")
    if not dense:
        return None
    if not sparse or sparse == dense:
        return ("MACs", short(dense), f"per {run.task.example}")
    return ("MACs", short(sparse), f"of {short(dense)}, {dense / sparse:.3g}× fewer")


def spec_rows(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (section, its settings); the last section holds the circumstances, which do not make it another run."""
    sections: dict[str, list[tuple[str, str]]] = {}
    around: list[tuple[str, str]] = []
    for key, value in flatten(run.spec).items():
        section, _, setting = key.partition(".")
        if value is None and not setting:
            continue  # a section that this run does not have
        if is_circumstance(key):
            around.append((key, _shown(value)))
        else:
            sections.setdefault(section, []).append((setting or section, _shown(value)))
    return [*sections.items(), ("circumstances", around)] if around else [*sections.items()]


def version_rows(run: Run) -> list[tuple[str, str]]:
    versions = dict(run.versions)
    command = versions.pop("command", None)
    rows = [(key, _shown(value)) for key, value in flatten(versions).items()]
    if isinstance(command, list):
        rows.append(("command", shlex.join(str(word) for word in command)))
    return rows


def _shown(value: Any) -> str:
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_shown(part) for part in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _part(record: Record, key: str) -> Record:
    part = record.get(key)
    return part if isinstance(part, dict) else {}


def _score(run: Run, record: Record, part: str) -> float | None:
    value: float | None = _part(record, part).get(run.task.score.name)
    return value


def _target(run: Run) -> str:
    return "learned, without a target" if run.target is None else f"target {_brief(run.target)}"


def _brief(fraction: float | None) -> str:
    return MISSING if fraction is None else f"{100 * fraction:.10g}{SPACE}%"


def _loss(metrics: Record) -> str:
    return f"loss {real(metrics['loss'])}" if metrics.get("loss") is not None else ""
