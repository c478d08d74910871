"""What the page says in words and tables."""

import shlex
from dataclasses import dataclass
from typing import Any

from ..results import Record, Run
from .formats import MISSING, SPACE, bytes_text, count, duration, percent, real, short

__all__ = ["Table", "headline", "key_figures", "spec_rows", "standing", "version_rows"]


@dataclass(frozen=True)
class Table:
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    total: tuple[str, ...] | None = None
    left: int = 1  # so many columns are words, flush left


def headline(run: Run) -> str:
    method = "dense" if run.method is None else f"{run.method} at {_brief(run.target)} sparsity"
    if run.is_in_cycles:
        method += f" in {run.planned_cycles} cycles"
    elif run.spec.get("cycle") is not None:
        method += f", cycle {run.spec['cycle']}"
    return f"{run.model} on {run.data}, {method}"


def standing(run: Run) -> str:
    """Return the result in a sentence or two, or how far the run has come."""
    if run.summary is None:
        return _progress(run)
    test = _part(run.summary, "test").get("accuracy")
    result = (
        f"Test accuracy {percent(test)} with the weights of epoch {run.summary.get('best_epoch', MISSING)}"
    )
    if run.dense is None:
        return f"{result}."
    twin = _part(run.dense.summary or {}, "test").get("accuracy")
    if twin is None or test is None:
        return f"{result}. The dense twin is not finished."
    return f"{result}; the dense twin reaches {percent(twin)}, a difference of {_points(test - twin)}."


def _progress(run: Run) -> str:
    planned = run.planned_epochs
    done = f"{len(run.epochs)} of {planned} epochs" if planned else f"{len(run.epochs)} epochs"
    best = run.best
    so_far = ""
    if best is not None:
        accuracy = percent(_part(best, "validation").get("accuracy"))
        so_far = f" Best validation accuracy so far: {accuracy}, epoch {best['epoch']}."
    return f"Not finished: this page shows {done}. The run is still going, or was interrupted.{so_far}"


def key_figures(run: Run) -> list[tuple[str, str, str]]:
    """Return (name, value, remark) of the figures that are known."""
    summary, last = run.summary or {}, run.epochs[-1] if run.epochs else {}
    test, best = _part(summary, "test"), run.best or last
    sparsity = summary.get("sparsity", last.get("sparsity")) if run.method else None
    seconds = summary.get("seconds", last.get("seconds"))
    epochs = summary.get("epochs", len(run.epochs))
    validation = _part(summary, "validation") or _part(best, "validation")
    steps = summary.get("steps", last.get("step"))
    figures = [
        ("test accuracy", percent(test.get("accuracy")), _loss(test)),
        ("validation accuracy", percent(validation.get("accuracy")), _loss(validation)),
        _twin_figure(run),
        ("sparsity", percent(sparsity), f"asked {_brief(run.target)}"),
        _parameters_figure(run),
        _macs_figure(summary),
        (
            "model file",
            bytes_text(summary.get("model_bytes")),
            _sparse_file(summary),
        ),
        (
            "training",
            duration(seconds),
            f"{duration(seconds / epochs)} per epoch" if seconds and epochs else "",
        ),
        ("epochs", count(epochs), f"{count(steps)} steps" if steps else ""),
    ]
    return [figure for figure in figures if figure and figure[1] != MISSING]


def _sparse_file(summary: Record) -> str:
    size = summary.get("sparse_model_bytes")
    return "" if size is None else f"{bytes_text(size)} as a sparse file"


def _parameters_figure(run: Run) -> tuple[str, str, str] | None:
    total, active = ((run.summary or {}).get(key) for key in ("parameters", "active_parameters"))
    if run.method is None or active is None:
        return ("parameters", count(total), "")
    return ("active parameters", count(active), f"of {count(total)}")


def _twin_figure(run: Run) -> tuple[str, str, str] | None:
    if run.dense is None:
        return None
    ours, twin = (_part(r.summary or {}, "test").get("accuracy") for r in (run, run.dense))
    if ours is None or twin is None:
        return ("dense twin", f"{len(run.dense.epochs)} epochs", "so far")
    return ("against the dense twin", _points(ours - twin), f"twin: {percent(twin)}")


def _macs_figure(summary: Record) -> tuple[str, str, str] | None:
    dense, sparse = summary.get("dense_macs"), summary.get("sparse_macs")
    if not dense:
        return None
    if not sparse or sparse == dense:
        return ("MACs", short(dense), "per picture")
    return ("MACs", short(sparse), f"of {short(dense)}, {dense / sparse:.3g}× fewer")


def spec_rows(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the spec section by section, as (name, value)."""
    sections = [(name, _flat(value)) for name, value in run.spec.items() if isinstance(value, dict)]
    single = {name: value for name, value in run.spec.items() if not isinstance(value, dict)}
    return [*sections, ("run", _flat(single))] if single else sections


def version_rows(run: Run) -> list[tuple[str, str]]:
    versions = dict(run.versions)
    command = versions.pop("command", None)
    rows = _flat(versions)
    if isinstance(command, list):
        rows.append(("command", shlex.join(str(word) for word in command)))
    return rows


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        return [
            row for key, part in value.items() for row in _flat(part, f"{name}.{key}" if name else str(key))
        ]
    return [(name, _shown(value))]


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


def _points(difference: float) -> str:
    """In percentage points, with a sign: −0.87 points."""
    return f"{100 * difference:+.2f}{SPACE}points".replace("-", "−")


def _brief(fraction: float | None) -> str:
    return MISSING if fraction is None else f"{100 * fraction:.10g}{SPACE}%"


def _loss(figures: Record) -> str:
    return f"loss {real(figures['loss'])}" if figures.get("loss") is not None else ""
