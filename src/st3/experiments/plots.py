"""Several runs in one figure: over epochs, or their results over sparsity or multiply-adds."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..atomic import write_file
from ..training.paths import SPEC
from ..training.sections import flatten
from ..training.tasks import Score
from .essence import is_circumstance
from .evidence.drawing import Curves, draw_curves, new_figure
from .evidence.points import Point, points_of_run
from .grid.index import FinishedRun
from .results import ResultsError, Run
from .spec import DENSE, read_spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["labels", "plot_runs"]

Over = Literal["epochs", "sparsity", "macs"]
ENDINGS = (".png", ".svg", ".pdf")
# Colour-blind readers can tell these apart; where they repeat, the dashes differ.
COLOURS = ("#1f4e79", "#c8501e", "#4aa3c7", "#8a6d00", "#111111", "#b07aa1")
DASHES = ("-", "--", ":", "-.")


def plot_runs(
    runs: Sequence[str | os.PathLike[str]], destination: str | os.PathLike[str], over: Over = "epochs"
) -> Path:
    """Draw the runs into `destination`, a .png, .svg or .pdf file; return its path. Needs matplotlib.

    Over epochs, every run is a curve of its score in validation and one of sparsity. Over sparsity or multiply-adds
    ("macs"), every finished run is a point of its test score; runs that differ in sparsity and seed alone are a curve.
    """
    path = Path(destination)
    kind = path.suffix.lower()
    if kind not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise ValueError(f"cannot draw into {path.name!r}: the name must end in {known}")
    if not runs:
        raise ValueError("nothing to draw: give at least one run's folder")
    opened = [Run.open(run) for run in runs]
    figure = _draw(opened) if over == "epochs" else _draw_results(opened, over)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, lambda file: figure.savefig(file, format=kind[1:], dpi=150))
    return path


def labels(runs: Sequence[Run]) -> list[str]:
    """Name each run by the settings in which the runs differ, or else by its folder."""
    flat = [_settings(run) for run in runs]
    # A dense run has no method with settings; those are compared among the others.
    keys = list(dict.fromkeys(key for spec in flat for key in spec if not key.startswith("sparse.")))
    differing = [key for key in keys if len({repr(spec.get(key)) for spec in flat}) > 1]
    essential = [key for key in differing if not is_circumstance(key)]
    if not essential and len({repr(run.spec.get("sparse")) for run in runs}) == 1:
        essential = differing
    essential += _sparse_differences(runs, flat)
    is_one_kind = len({(run.method, run.target) for run in runs}) == 1
    found = []
    for run, spec in zip(runs, flat, strict=True):
        words = [] if is_one_kind else [_kind(run)]
        words += [
            _describe(key, spec[key])
            for key in essential
            if key in spec and (run.method is not None or not key.startswith("sparse."))
        ]
        found.append(", ".join(words))
    return [
        label if label and found.count(label) == 1 else ", ".join(filter(None, [label, _folder(run)]))
        for label, run in zip(found, runs, strict=True)
    ]


def _settings(run: Run) -> dict[str, Any]:
    """Return the run's settings by dotted key, without a protocol that does not change the result."""
    hidden = ("part.",) if run.is_sequence else ("part.", "protocol.")
    flat = {k: v for k, v in flatten(run.spec).items() if v != {} and not k.startswith(hidden)}
    return flat | ({"part.name": run.part_of} if run.part_of else {})


def _sparse_differences(runs: Sequence[Run], flat: list[dict[str, Any]]) -> list[str]:
    sparse = [spec for run, spec in zip(runs, flat, strict=True) if run.method is not None]
    keys = dict.fromkeys(key for spec in sparse for key in spec if key.startswith("sparse."))
    return [
        key
        for key in keys
        if key not in ("sparse.method.name", "sparse.sparsity")
        and len({repr(spec.get(key)) for spec in sparse}) > 1
    ]


def _kind(run: Run) -> str:
    return DENSE if run.method is None else f"{run.method} {run.target:g}" if run.target else run.method


def _describe(key: str, value: Any) -> str:
    """Return a setting without its section; a name needs no word in front of it."""
    setting = key.partition(".")[2] or key
    return str(value) if setting.rpartition(".")[2] == "name" else f"{setting} {value}"


def _folder(run: Run) -> str:
    """Return the name of the run's folder, with the folder above it where that is a run, too."""
    path = run.path.resolve()
    return f"{path.parent.name}/{path.name}" if (path.parent / SPEC).is_file() else path.name


def _draw(runs: Sequence[Run]) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install 'st3[plot]'") from error

    # Without pyplot, which would keep the figure in memory and might open a window.
    figure = Figure(figsize=(10, 4.4 + 0.2 * len(runs)), layout="constrained")
    left, sparsity = figure.subplots(1, 2, squeeze=False)[0]
    score = _common_score(runs)
    for number, run in enumerate(runs):
        look = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
            "linewidth": 1.6,
            "marker": "o" if len(run.epochs) <= 24 else None,
            "markersize": 3,
        }
        epochs = [epoch["epoch"] for epoch in run.epochs]
        values = [(epoch.get("validation") or {}).get(score.name) for epoch in run.epochs]
        left.plot(epochs, [_scaled(value, score.factor) for value in values], **look)
        if run.method is not None:
            sparsity.plot(epochs, [_scaled(e.get("sparsity"), 100) for e in run.epochs], **look)
        else:
            sparsity.plot(epochs, [0.0] * len(epochs), **look)
    _tidy(left, f"Validation {score.axis}")
    _tidy(sparsity, "Sparsity (%)")
    # Below both panels, where it covers no curve.
    names = [_escape(label) for label in labels(runs)]
    figure.legend(left.get_lines(), names, loc="outside lower left", frameon=False, fontsize=9)
    return figure


def _draw_results(runs: Sequence[Run], over: Literal["sparsity", "macs"]) -> "Figure":
    """Draw the test scores of finished runs; dense ones are a line."""
    points: list[Point] = []
    for run, curve in zip(runs, _curve_names(runs), strict=True):
        if run.summary is None:
            raise ResultsError(f"{run.path} is not finished: only finished runs can be drawn over {over}")
        points += points_of_run(
            FinishedRun(run.path, read_spec(run.path / SPEC), run.summary), curve, str(run.path)
        )
    figure = new_figure(1)
    curves = {point.method: _escape(point.method) for point in points if point.method != DENSE}
    dense = [point for point in points if point.method == DENSE]
    shown = [point for point in points if point.method != DENSE]
    title = f"Test {_common_score(runs).title}"
    draw_curves(figure.add_subplot(), Curves(title, shown, curves, over, dense=dense))
    return figure


def _curve_names(runs: Sequence[Run]) -> list[str]:
    """Name the curve of each run by its method and the settings that differ, but for sparsity and seeds."""
    apart = ("seeds.", "sparse.sparsity", "sparse.method.name")
    flat = [{k: v for k, v in _settings(run).items() if not k.startswith(apart)} for run in runs]
    sparse = [spec for run, spec in zip(runs, flat, strict=True) if run.method is not None]
    keys = dict.fromkeys(key for spec in sparse for key in spec if not is_circumstance(key))
    differing = [key for key in keys if len({repr(spec.get(key)) for spec in sparse}) > 1]
    return [
        DENSE
        if run.method is None
        else ", ".join([run.method, *(_describe(k, spec[k]) for k in differing if k in spec)])
        for run, spec in zip(runs, flat, strict=True)
    ]


def _common_score(runs: Sequence[Run]) -> Score:
    """Return the score of all runs; raise if they have several, which cannot share an axis."""
    found = {run.task.score.title: run for run in runs}
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        raise ResultsError(
            f"{first.path} has {one}, {second.path} {other}: runs in one figure need the same score"
        )
    return runs[0].task.score


def _scaled(value: float | None, factor: float) -> float:
    return float("nan") if value is None else factor * value


def _escape(label: str) -> str:
    """Escape what is special to matplotlib: $ starts a formula, and labels that begin with _ are left out."""
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
