"""Section 3, "very little overhead": the time of a training step of every method, over that of a dense step.

The numbers come from benchmarks/step_overhead.py, which times dense and sparse copies in turns: ResNet-20, batch 128.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from ...atomic import write_text
from ..evidence.drawing import COLOURS, new_figure
from ..evidence.points import Point
from ..evidence.verdicts import CANNOT_TELL, DOES_NOT_HOLD, HOLDS, Answer, Verdict
from ..grid.budgets import Budget
from ..grid.index import FinishedRun
from ..grid.wanted import Wanted
from .study import STUDIES, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Costs"]

MEASURED = Path(__file__).parents[1] / "evidence" / "costs.csv"
FILE = "costs.csv"
LITTLE = 1.05  # at most 5 % more


@final
@STUDIES.register("costs")
class Costs(Study):
    """Time per step over a dense step, by method."""

    name = "costs"
    title = "What a method costs per training step"
    shown_in = "section 3"
    differences = (
        "the paper gives no numbers; these are of a processor without accelerator, where a step is long."
    )

    def write_more(self, folder: Path, finished: Sequence[tuple[Wanted, FinishedRun]]) -> None:
        if not (folder / FILE).exists():
            write_text(folder / FILE, MEASURED.read_text(encoding="utf-8"))

    def draw(self, points: Sequence[Point], budget: Budget, folder: Path) -> "Figure":
        rows = sorted(_read(folder), key=lambda row: row["median"])
        figure = new_figure(1)
        axes = figure.add_subplot()
        places = range(len(rows))
        for kind, shift, colour in (("median", 0.2, COLOURS[0]), ("min", -0.2, COLOURS[2])):
            heights = [place + shift for place in places]
            axes.barh(heights, [row[kind] for row in rows], 0.4, label=kind, color=colour)
        axes.axvline(1.0, color="#111111", linewidth=1)
        axes.set_yticks(list(places), [str(row["method"]) for row in rows])
        axes.set(xlabel="time of a step over a dense step, ResNet-20", xlim=(0.9, None), title=self.title)
        axes.legend(fontsize="small")
        return figure

    def verdicts(self, points: Iterable[Point], budget: Budget, folder: Path) -> list[Verdict]:
        row = next((row for row in _read(folder) if row["method"] == "st3"), None)
        sentence = "ST-3 adds very little to the time of a training step (at most 5 %)."
        if row is None:
            return [Verdict(sentence, CANNOT_TELL, "not measured")]
        within = [row["min"] <= LITTLE, row["median"] <= LITTLE]
        answer: Answer = HOLDS if all(within) else CANNOT_TELL if any(within) else DOES_NOT_HOLD
        numbers = (
            f"{row['min']:.3f} by minimum, {row['median']:.3f} by median; added inside optimizer.step "
            f"{100 * row['added_min']:.1f} and {100 * row['added_median']:.1f} % ({row['rounds']:g} rounds)"
        )
        return [Verdict(sentence, answer, numbers)]


def _read(folder: Path) -> list[dict[str, Any]]:
    with (folder / FILE).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        {key: text if key in ("method", "cpu") else float(text) for key, text in row.items()} for row in rows
    ]
