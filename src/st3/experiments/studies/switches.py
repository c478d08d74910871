"""Figure 6: how often weights switch between active and zeroed, with the sparsity fixed and with it rising."""

import csv
import io
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, final

from ...atomic import write_text
from ..evidence.drawing import COLOURS, new_figure
from ..evidence.points import Point
from ..evidence.verdicts import CANNOT_TELL, DOES_NOT_HOLD, HOLDS, Answer, Verdict
from ..grid.budgets import Budget
from ..grid.index import FinishedRun
from ..grid.wanted import Wanted
from .series import ST3
from .study import STUDIES, Panel, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Switches"]

WINDOWS = 4
FEWEST = 2  # weights with fewer switches in a window are left out, as in the paper: the ramp itself switches each once
CUBIC = replace(ST3, name="st3-cubic", label="rising sparsity (cubic)", sparsities=(0.9,), windows=WINDOWS)
FIXED = replace(CUBIC, name="st3-constant", label="fixed sparsity", more={"ramp": "constant"})
FILE = "switches.csv"
COLUMNS = ("method", "seed", "window", "first_epoch", "last_epoch", "state", "switches", "weights")
STATES = ("active", "zeroed")


@final
@STUDIES.register("switches")
class Switches(Study):
    """Switches per weight in four windows of the run, weights with fewer than two left out."""

    name = "switches"
    title = "Switches of weights between active and zeroed"
    shown_in = "figure 6"

    def panels(self) -> Sequence[Panel]:
        return [Panel("ResNet-20 at 90 %", (FIXED, CUBIC), has_dense=False)]

    def write_more(self, folder: Path, finished: Sequence[tuple[Wanted, FinishedRun]]) -> None:
        """Write the histograms of the runs that are there; those of other runs stay in the file."""
        there = {(wanted.series, wanted.seed) for wanted, _ in finished}
        stored = _read(folder) if (folder / FILE).exists() else []
        rows = [row for row in stored if (row["method"], row["seed"]) not in there]
        for wanted, run in finished:
            rows += _rows(wanted, run)
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: [row[name] for name in COLUMNS]))
        write_text(folder / FILE, text.getvalue())

    def draw(self, points: Sequence[Point], budget: Budget, folder: Path) -> "Figure":
        rows = _read(folder)
        figure = new_figure(2)
        figure.set_size_inches(12, 5.4)
        axes = figure.subplots(2, WINDOWS, sharex=True, sharey=True)
        for line, series in zip(axes, (FIXED, CUBIC), strict=True):
            for window, place in enumerate(line, start=1):
                own = [row for row in rows if row["method"] == series.name and row["window"] == window]
                _draw_window(place, own)
                epochs = f"epochs {own[0]['first_epoch']}-{own[0]['last_epoch']}" if own else "no runs yet"
                place.set_title(f"{series.label}, {epochs}", fontsize="small")
        for place in axes[-1]:
            place.set_xlabel("switches of a weight")
        for place in axes[:, 0]:
            place.set_ylabel("weights")
        axes[0][0].legend(fontsize="small", title="at the end")
        return figure

    def verdicts(self, points: Iterable[Point], budget: Budget, folder: Path) -> list[Verdict]:
        means = _switches_per_weight(_read(folder))
        fixed, cubic = means[FIXED.name], means[CUBIC.name]
        seeds = sorted(seed for seed in fixed.keys() & cubic.keys() if all(fixed[seed]))
        sentence = "Raising the sparsity gradually reduces switching"
        first, second = f"{sentence}.", f"{sentence} most in the second quarter of training."
        if not seeds:
            return [
                Verdict(text, CANNOT_TELL, "no runs with switches in every quarter")
                for text in (first, second)
            ]
        ratios = [[c / f for c, f in zip(cubic[seed], fixed[seed], strict=True)] for seed in seeds]
        total = [sum(cubic[seed]) / sum(fixed[seed]) for seed in seeds]
        shown = ", ".join(f"{fmean(quarter):.2f}" for quarter in zip(*ratios, strict=True))
        numbers = f"switches with the ramp over those without: {fmean(total):.2f} in all; by quarter {shown}"
        numbers += f" ({len(seeds)} seed{'s' * (len(seeds) > 1)})"
        gaps = [quarters[1] - min(1.0, quarters[0], *quarters[2:]) for quarters in ratios]
        return [
            Verdict(first, _is_below(total, 1.0), numbers),
            Verdict(second, _is_below(gaps, 0.0), numbers),
        ]


def _rows(wanted: Wanted, run: FinishedRun) -> Iterator[dict[str, Any]]:
    """Yield the histograms of a run as rows of the file."""
    for number, window in enumerate(run.switches.get("windows", []), start=1):
        known = {"method": wanted.series, "seed": wanted.seed, "window": number}
        known |= {"first_epoch": window["first_epoch"], "last_epoch": window["last_epoch"]}
        for state in STATES:
            for switches, weights in window[state].items():
                yield known | {"state": state, "switches": int(switches), "weights": weights}


def _is_below(values: Sequence[float], limit: float) -> Answer:
    """Answer by the spread over seeds: two standard errors."""
    if len(values) < 2:
        return CANNOT_TELL
    error = stdev(values) / math.sqrt(len(values))
    if abs(fmean(values) - limit) <= 2 * error:
        return CANNOT_TELL
    return HOLDS if fmean(values) < limit else DOES_NOT_HOLD


def _read(folder: Path) -> list[dict[str, Any]]:
    numbers = ("window", "switches", "weights", "seed", "first_epoch", "last_epoch")
    with (folder / FILE).open(newline="", encoding="utf-8") as file:
        return [row | {name: int(row[name]) for name in numbers} for row in csv.DictReader(file)]


def _draw_window(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    """Draw a histogram with bins that double, one colour per state at the end of training."""
    edges = [2 * 2**n for n in range(13)]
    bottom = [0.0] * (len(edges) - 1)
    runs = len({row["seed"] for row in rows}) or 1
    for state, colour in zip(STATES, COLOURS, strict=False):
        counts = [0.0] * (len(edges) - 1)
        for row in rows:
            if row["state"] == state and row["switches"] >= FEWEST:
                place = min(int(math.log2(row["switches"])) - 1, len(counts) - 1)
                counts[place] += row["weights"] / runs
        widths = [high - low for low, high in itertools.pairwise(edges)]
        axes.bar(edges[:-1], counts, bottom=bottom, width=widths,
                 align="edge", color=colour, label=state, linewidth=0.3, edgecolor="white")  # fmt: skip
        bottom = [low + count for low, count in zip(bottom, counts, strict=True)]
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)


def _switches_per_weight(rows: Sequence[dict[str, Any]]) -> dict[str, dict[int, list[float]]]:
    """Return the mean number of switches per weight by curve, seed and window; those with one switch count as none."""
    switches: dict[tuple[str, int, int], float] = defaultdict(float)
    weights: dict[tuple[str, int, int], float] = defaultdict(float)
    for row in rows:
        key = (row["method"], row["seed"], row["window"])
        switches[key] += row["switches"] * row["weights"] if row["switches"] >= FEWEST else 0
        weights[key] += row["weights"]
    found: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for method, seed, _ in switches:
        found[method][seed] = [
            switches[method, seed, w] / weights[method, seed, w] if weights[method, seed, w] else 0.0
            for w in range(1, WINDOWS + 1)
        ]
    return found
