"""What a study is: the runs that a figure or table needs, and how it is drawn from their points.

A study declares panels: curves over sparsity or multiply-adds in one of the paper's settings. From them follow the runs
that are wanted at a budget and the drawing. A study with a drawing of its own overrides `draw`. A new study is one file
beside this one; the command, the list and the contract tests find it by its name.
"""

from abc import ABC
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...data.catalogue import DATASETS
from ...registry import Registry
from ...training.recipe import load_recipe
from ..evidence.drawing import Axis, Curves, draw_curves, new_figure
from ..evidence.points import Point
from ..evidence.published import published_points
from ..evidence.verdicts import Claim, Verdict, judge
from ..grid.budgets import Budget, Setting
from ..grid.index import FinishedRun
from ..grid.wanted import Wanted
from .series import DENSE, PUBLISHED_LABELS, Series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDIES", "Panel", "Study"]


@dataclass(frozen=True)
class Panel:
    """Some curves in one of the paper's settings."""

    title: str
    series: Sequence[Series]
    network: str = "resnet20"  # the paper's setting; the budget says what stands for it
    x: Axis = "sparsity"
    y: Axis = "score"
    has_dense: bool = True  # a line of the dense network
    with_published: bool = False


class Study(ABC):
    """A figure or table of the paper, or a comparison of one's own."""

    name: str
    title: str
    shown_in: str = ""  # where the paper shows it; empty: it does not
    usual_budget: str = "digits"
    differences: str = ""  # where the setting differs from the paper's, at every budget
    claims: Sequence[Claim] = ()

    @property
    def place(self) -> str:
        """Where it is shown, in words."""
        return f"{self.shown_in} of the paper" if self.shown_in else "not in the paper"

    def panels(self) -> Sequence[Panel]:
        """Return the panels of the figure, left to right."""
        return ()

    def wanted(self, budget: Budget) -> list[Wanted]:
        """Return the runs that the study needs at this budget."""
        found: list[Wanted] = []
        for panel in self.panels():
            setting = budget.settings.get(panel.network)
            if setting is not None:
                for series in (*([DENSE] if panel.has_dense else []), *panel.series):
                    if budget.methods is None or series.name in budget.methods:
                        found += runs_of(series, setting, budget.seeds)
        return found

    def published(self) -> list[Point]:
        """Return the published points that the study shows."""
        networks = {panel.network for panel in self.panels() if panel.with_published}
        return [point for point in published_points() if point.network in networks]

    def write_more(self, folder: Path, finished: Sequence[tuple[Wanted, FinishedRun]]) -> None:  # noqa: B027
        """Write what the drawing needs beside the points into the study's folder."""

    def draw(self, points: Sequence[Point], budget: Budget, folder: Path) -> "Figure":
        """Return the figure, made from the points and other files of the study's folder alone."""
        panels = [
            panel for panel in self.panels() if panel.with_published or panel.network in budget.settings
        ]
        figure = new_figure(max(1, len(panels)))
        every = [self._curves(panel, points, budget) for panel in panels]
        looks = [method for curves in every for method in curves.labels]
        columns = min(2, len(panels))
        for number, curves in enumerate(every, start=1):
            axes = figure.add_subplot(-(-len(panels) // columns), columns, number)
            draw_curves(axes, replace(curves, looks=looks))
        return figure

    def table(self, points: Sequence[Point]) -> list[str]:
        """Return the lines of a Markdown table of its own, in place of scores by method and sparsity."""
        return []

    def verdicts(self, points: Iterable[Point], budget: Budget, folder: Path) -> list[Verdict]:
        """Return what our points say about each claim of the paper."""
        ours = [point for point in points if point.is_ours]
        found = []
        for claim in self.claims:
            setting = budget.settings.get(claim.network)
            own = [p for p in ours if setting and (p.network, p.data) == (setting.model, setting.data)]
            found.append(judge(claim, own))
        return found

    def _curves(self, panel: Panel, points: Sequence[Point], budget: Budget) -> Curves:
        setting = budget.settings.get(panel.network)
        own = [
            p
            for p in points
            if p.is_ours and setting and (p.network, p.data) == (setting.model, setting.data)
        ]
        shown = [*own]
        if panel.with_published:
            shown += [p for p in points if not p.is_ours and p.network == panel.network]
        labels = {series.name: series.label for series in panel.series}
        if panel.with_published:
            others = {p.method for p in shown} - {*labels, DENSE.name}
            labels |= {name: PUBLISHED_LABELS.get(name, name) for name in sorted(others)}
        dense = [p for p in own if p.method == DENSE.name] if panel.has_dense and panel.y == "score" else []
        kept = [p for p in shown if p.method in labels]
        return Curves(panel.title, kept, labels, panel.x, panel.y, dense)


STUDIES: Registry[type[Study]] = Registry("study")


def runs_of(series: Series, setting: Setting, seeds: Sequence[int]) -> Iterable[Wanted]:
    """Yield the runs of one curve."""
    method = series.method if isinstance(series.method, str) else str(series.method["name"])
    epochs = setting.epochs
    if series.times > 1:
        epochs = series.times * (epochs or _usual_epochs(setting))
    sparsities: Sequence[float | None] = series.sparsities or setting.sparsities
    if series.name == DENSE.name:
        sparsities = [None]
    elif series.is_one_run:
        sparsities = [max(sparsities, key=lambda sparsity: sparsity or 0.0)]
    for sparsity in sparsities:
        sparse = {
            "method": series.method,
            **({} if sparsity is None else {"sparsity": sparsity}),
            **series.more,
        }
        first = Wanted(
            series.name,
            setting.data,
            setting.model,
            sparse,
            series.recipe or setting.recipes.get(method, setting.recipe),
            epochs,
            series.protocol,
            windows=series.windows,
        )
        yield from (replace(first, seed=seed) for seed in seeds)


def _usual_epochs(setting: Setting) -> int:
    usual = DATASETS.declaration(setting.data).recipe_for(setting.model)
    return load_recipe(setting.recipe or usual or "").epochs
