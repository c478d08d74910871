"""Several runs in one picture: validation accuracy and sparsity over epochs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..atomic import write_file
from .results import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["labels", "plot_runs"]

PICTURES = (".png", ".svg", ".pdf")
# Told apart by colour-blind readers; where they repeat, the dashes differ.
COLOURS = ("#1f4e79", "#c8501e", "#4aa3c7", "#8a6d00", "#111111", "#b07aa1")
DASHES = ("-", "--", ":", "-.")
# These say where and on what a run was made, which matters only if nothing else differs.
CIRCUMSTANCES = ("data.dir", "data.download", "machine.", "dense_twin")


def plot_runs(runs: Sequence[str | os.PathLike[str]], destination: str | os.PathLike[str]) -> Path:
    """Draw the runs into `destination`, a .png, .svg or .pdf file; return its path. Needs matplotlib."""
    path = Path(destination)
    kind = path.suffix.lower()
    if kind not in PICTURES:
        known = ", ".join(PICTURES)
        raise ValueError(f"cannot draw into {path.name!r}: the name must end in {known}")
    if not runs:
        raise ValueError("nothing to draw: give at least one run's folder")
    figure = _draw([Run.open(run) for run in runs])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, lambda file: figure.savefig(file, format=kind[1:], dpi=150))
    return path


def labels(runs: Sequence[Run]) -> list[str]:
    """Name each run by what differs between the specs, else by its folder."""
    flat = [_flat(run.spec) for run in runs]
    # A dense run has no method to have settings; those are compared among the others.
    keys = list(dict.fromkeys(key for spec in flat for key in spec if not key.startswith("sparse.")))
    differing = [key for key in keys if len({repr(spec.get(key)) for spec in flat}) > 1]
    telling = [key for key in differing if not key.startswith(CIRCUMSTANCES)]
    if not telling and len({repr(run.spec.get("sparse")) for run in runs}) == 1:
        telling = differing
    own = _sparse_differences(runs, flat)
    is_one_kind = len({(run.method, run.target) for run in runs}) == 1
    found = []
    for run, spec in zip(runs, flat, strict=True):
        words = [] if is_one_kind else [_kind(run)]
        words += [_said(key, spec.get(key)) for key in telling]
        words += [_said(key, spec.get(key)) for key in own if run.method is not None]
        found.append(", ".join(words))
    return [
        label if label and found.count(label) == 1 else ", ".join(filter(None, [label, _folder(run)]))
        for label, run in zip(found, runs, strict=True)
    ]


def _sparse_differences(runs: Sequence[Run], flat: list[dict[str, Any]]) -> list[str]:
    sparse = [spec for run, spec in zip(runs, flat, strict=True) if run.method is not None]
    keys = dict.fromkeys(key for spec in sparse for key in spec if key.startswith("sparse."))
    return [
        key
        for key in keys
        if key not in ("sparse.method", "sparse.sparsity")
        and len({repr(spec.get(key)) for spec in sparse}) > 1
    ]


def _kind(run: Run) -> str:
    return "dense" if run.method is None else f"{run.method} {run.target:g}" if run.target else run.method


def _said(key: str, value: Any) -> str:
    """Name a setting without its section; what a name names needs no word before it."""
    setting = key.partition(".")[2] or key
    return str(value) if setting.rpartition(".")[2] == "name" else f"{setting} {value}"


def _folder(run: Run) -> str:
    path = run.path.resolve()
    return f"{path.parent.name}/dense" if path.name == "dense" else path.name


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {name: value}
    return {
        key: leaf
        for part, inner in value.items()
        for key, leaf in _flat(inner, f"{name}.{part}" if name else str(part)).items()
    }


def _draw(runs: Sequence[Run]) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install 'st3[plot]'") from error

    # pyplot is avoided: it would keep the figure alive and may open a window.
    figure = Figure(figsize=(10, 4.4 + 0.2 * len(runs)), layout="constrained")
    accuracy, sparsity = figure.subplots(1, 2, squeeze=False)[0]
    for number, run in enumerate(runs):
        look = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
            "linewidth": 1.6,
            "marker": "o" if len(run.epochs) <= 24 else None,
            "markersize": 3,
        }
        epochs = [epoch["epoch"] for epoch in run.epochs]
        accuracy.plot(
            epochs, [_percent((e.get("validation") or {}).get("accuracy")) for e in run.epochs], **look
        )
        if run.method is not None:
            sparsity.plot(epochs, [_percent(e.get("sparsity")) for e in run.epochs], **look)
        else:
            sparsity.plot(epochs, [0.0] * len(epochs), **look)
    _tidy(accuracy, "Validation accuracy (%)")
    _tidy(sparsity, "Sparsity (%)")
    # Below both panels, where no curve can be hidden.
    names = [_plain(label) for label in labels(runs)]
    figure.legend(accuracy.get_lines(), names, loc="outside lower left", frameon=False, fontsize=9)
    return figure


def _percent(fraction: float | None) -> float:
    return float("nan") if fraction is None else 100 * fraction


def _plain(label: str) -> str:
    """Guard against matplotlib's own reading: $ starts a formula, and a name with _ in front is left out."""
    return label.replace("$", r"\$") if not label.startswith("_") else f" {label}".replace("$", r"\$")


def _tidy(axes: "Axes", title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("epoch")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
