"""Figure 2: the weight that the forward pass sees while gradient steps move the raw weight across the threshold."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

import torch

from ...atomic import write_text
from ...core.operators import hard, soft
from ..evidence.drawing import COLOURS, new_figure
from ..evidence.points import Point
from ..grid.budgets import Budget
from ..grid.index import FinishedRun
from ..grid.wanted import Wanted
from .study import STUDIES, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Operators"]

THRESHOLD = 0.5
STEPS = torch.tensor(
    [0.0, 0.08, 0.06, 0.09, -0.05, -0.07, 0.06, 0.08, 0.09, -0.04, -0.12, -0.06, 0.1, 0.12, 0.05]
)
FIRST = 0.36  # the raw weight before the first step
FILE = "weights.csv"


@final
@STUDIES.register("operators")
class Operators(Study):
    """Hard and soft thresholding of one weight over some gradient steps; nothing is trained."""

    name = "operators"
    title = "One weight under hard and soft thresholding"
    shown_in = "figure 2"
    differences = "the sequence of gradient steps is ours; the weights are computed by `st3.core.operators`."

    def write_more(self, folder: Path, finished: Sequence[tuple[Wanted, FinishedRun]]) -> None:
        raw = FIRST + STEPS.cumsum(0)
        columns = {"raw": raw, "hard": hard(raw, THRESHOLD), "soft": soft(raw, THRESHOLD)}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["step", *columns])
        for step, row in enumerate(torch.stack([*columns.values()], 1).tolist()):
            writer.writerow([step, *(f"{value:.4f}" for value in row)])
        write_text(folder / FILE, text.getvalue())

    def draw(self, points: Sequence[Point], budget: Budget, folder: Path) -> "Figure":
        with (folder / FILE).open(newline="", encoding="utf-8") as file:
            rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
        figure = new_figure(2)
        for number, name in enumerate(("hard", "soft"), start=1):
            axes = figure.add_subplot(1, 2, number)
            steps = [row["step"] for row in rows]
            axes.plot(steps, [row["raw"] for row in rows], "--", color="#777777", label="raw weight")
            axes.plot(
                steps, [row[name] for row in rows], "o-", color=COLOURS[number - 1], label="forward weight"
            )
            axes.axhline(THRESHOLD, color="#111111", linestyle=":", linewidth=1, label="threshold")
            axes.set(title=f"{name} thresholding", xlabel="gradient step", ylabel="weight")
            axes.grid(alpha=0.3)
            axes.legend(fontsize="small")
        return figure
