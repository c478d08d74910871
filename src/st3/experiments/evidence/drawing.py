"""Curves of scores: every seed a dot, the mean a line, the standard deviation a band."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from ...atomic import write_file
from ...training.tasks import TASKS
from .points import Point, common_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "MARKERS", "Axis", "Curves", "draw_curves", "new_figure", "save_figure"]

# Colour-blind readers can tell these apart; where they repeat, the markers differ.
COLOURS = ("#1f4e79", "#c8501e", "#4aa3c7", "#8a6d00", "#111111", "#b07aa1", "#5f9e6e", "#999999")
MARKERS = "osD^vP*X<>"
Axis = Literal["sparsity", "macs", "score"]
LABELS: Mapping[Axis, str] = {"sparsity": "sparsity", "macs": "million multiply-adds"}


@dataclass(frozen=True)
class Curves:
    """One panel: points with the same x axis, a curve for each method."""

    title: str
    points: Sequence[Point]
    labels: Mapping[str, str]  # of the methods, in the order of the legend
    x: Axis = "sparsity"
    y: Axis = "score"
    dense: Sequence[Point] = ()  # a line to compare with
    looks: Sequence[str] = ()  # the methods of all panels of a figure: each looks the same in every panel


def new_figure(panels: int) -> "Figure":
    """Return an empty figure with room for that many panels. Needs matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install 'st3[plot]'") from error
    columns = min(2, panels)
    rows = -(-panels // columns)
    return Figure(figsize=(6.0 * columns, 4.2 * rows), layout="constrained")


def draw_curves(axes: "Axes", curves: Curves) -> None:
    """Draw one panel."""
    looks = [*dict.fromkeys([*curves.looks, *curves.labels])]
    for method, label in curves.labels.items():
        number = looks.index(method)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        for is_ours in (True, False):
            points = [p for p in curves.points if p.method == method and p.is_ours == is_ours]
            if points:
                name = label if is_ours else f"{label} (published)"
                _draw_curve(axes, points, curves, name, colour, marker, is_ours)
    if curves.dense:
        level = fmean(map(_value("score"), curves.dense))
        axes.axhline(level, color="#777777", linestyle="--", linewidth=1, label="dense")
    axes.set(title=curves.title, xlabel=LABELS[curves.x], ylabel=_label(curves))
    _scale(axes, curves)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
    else:
        axes.text(
            0.5, 0.5, "no runs yet", ha="center", va="center", transform=axes.transAxes, color="#777777"
        )


def save_figure(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Write the figure as SVG and PNG, the same bytes for the same picture; return the paths."""
    import matplotlib

    paths = []
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            path = folder / f"{name}.{kind}"
            save = partial(figure.savefig, format=kind, dpi=120, metadata=metadata)
            write_file(path, save)
            paths.append(path)
    return paths


def _draw_curve(
    axes: "Axes", points: Sequence[Point], curves: Curves, label: str, colour: str, marker: str, is_ours: bool
) -> None:
    by_sparsity = defaultdict(list)
    for point in points:
        by_sparsity[point.sparsity].append(point)
    x, y = _value(curves.x), _value(curves.y)
    cells = [cell for _, cell in sorted(by_sparsity.items())]
    cells = [cell for cell in cells if all(x(p) is not None and y(p) is not None for p in cell)]
    if not cells:
        return
    places = [fmean(map(x, cell)) for cell in cells]
    means = [fmean(map(y, cell)) for cell in cells]
    spread = [stdev(map(y, cell)) if len(cell) > 1 else 0.0 for cell in cells]
    style = "-" if is_ours else ":"
    axes.plot(places, means, style, color=colour, marker=marker, markersize=4, linewidth=1.2, label=label,
              markerfacecolor=colour if is_ours else "white")  # fmt: skip
    if any(spread):
        low = [mean - s for mean, s in zip(means, spread, strict=True)]
        high = [mean + s for mean, s in zip(means, spread, strict=True)]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        dots = [(x(p), y(p)) for cell in cells if len(cell) > 1 for p in cell]
        axes.plot(*zip(*dots, strict=True), ".", color=colour, markersize=3, alpha=0.6)


def _value(axis: Axis) -> Callable[[Point], float]:
    """Return what a point has on an axis. A log axis of sparsity counts the weights that are left."""
    return {
        "sparsity": lambda point: 1 - point.sparsity,
        "macs": lambda point: None if point.macs is None else point.macs / 1e6,
        "score": lambda point: TASKS[point.task].score.factor * point.score,
    }[axis]


def _label(curves: Curves) -> str:
    """Return the title of the y axis."""
    if curves.y != "score":
        return LABELS[curves.y]
    return common_task([*curves.points, *curves.dense]).score.axis


def _scale(axes: "Axes", curves: Curves) -> None:
    """Make the axes logarithmic as printed; limits come first, because a single value has no range of its own."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = _limits(curves, curves.x)
    if curves.x == "sparsity":
        axes.set_xlim(high, low)  # sparsity rises to the right
    else:
        axes.set_xlim(low, high)
    axes.set_xscale("log")
    if curves.x == "sparsity":
        ticks = (0.8, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)
        axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * (1 - value):g} %"))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        _label_numbers(axes.xaxis)
    if curves.y == "macs":
        axes.set_ylim(*_limits(curves, "macs"))
        axes.set_yscale("log")
        _label_numbers(axes.yaxis)


def _limits(curves: Curves, axis: Axis) -> tuple[float, float]:
    """Return the range of the points on an axis, with a margin."""
    value = _value(axis)
    found = [number for number in map(value, curves.points) if number is not None and number > 0]
    return (min(found) / 1.15, max(found) * 1.15) if found else (0.01, 1.0)


def _label_numbers(axis: Any) -> None:
    """Label a log axis with plain numbers: 50, 100, 200."""
    from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ScalarFormatter())
    axis.set_minor_locator(NullLocator())
