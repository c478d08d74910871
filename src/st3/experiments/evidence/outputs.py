"""What a study leaves behind: points.csv, the picture, a table, and the verdicts."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from ...atomic import write_text
from ...training.tasks import Score
from ..grid.budgets import Budget
from ..grid.index import FinishedRun
from ..grid.wanted import Wanted
from .drawing import save_figure
from .points import Point, common_task, points_of_run, read_points, write_points
from .verdicts import Verdict

if TYPE_CHECKING:
    from ..studies.study import Study

__all__ = ["POINTS", "collect_points", "count_runs", "verdict_table", "write_outputs"]

POINTS = "points.csv"
TABLE = "README.md"


def collect_points(study: "Study", finished: Iterable[tuple[Wanted, FinishedRun]], path: Path) -> list[Point]:
    """Return the published points, those of the finished runs, and those of the csv file whose runs are not there."""
    found, there = study.published(), set()
    for wanted, run in finished:
        there.add(wanted.identity)
        found += points_of_run(run, wanted.series, wanted.identity)
    stored = read_points(path) if path.exists() else []
    return found + [point for point in stored if point.is_ours and point.run.partition("/")[0] not in there]


def write_outputs(
    study: "Study",
    budget: Budget,
    folder: Path,
    points: Sequence[Point],
    finished: Sequence[tuple[Wanted, FinishedRun]],
) -> tuple[list[Path], list[Verdict]]:
    """Write the csv file, the picture and the page of a study into its folder; return their paths and the verdicts."""
    folder.mkdir(parents=True, exist_ok=True)
    write_points(folder / POINTS, points)
    study.write_more(folder, finished)
    points = read_points(folder / POINTS)  # the picture comes from files alone
    pictures = save_figure(study.draw(points, budget, folder), folder, study.name)
    verdicts = study.verdicts(points, budget, folder)
    write_text(folder / TABLE, _page(study, budget, points, verdicts))
    return [folder / POINTS, *pictures, folder / TABLE], verdicts


def count_runs(points: Iterable[Point]) -> int:
    """Return how many runs of ours the points come from."""
    return len({point.run.partition("/")[0] for point in points if point.is_ours})


def _page(study: "Study", budget: Budget, points: Sequence[Point], verdicts: Sequence[Verdict]) -> str:
    lines = [
        f"# {study.title}",
        "",
        f"{study.place[:1].upper()}{study.place[1:]}, at budget `{budget.name}`: {budget.about}. "
        f"Drawn from {count_runs(points)} runs.",
        "",
        f"![{study.title}]({study.name}.svg)",
        "",
    ]
    lines += verdict_table(verdicts)
    lines += study.table(points) or points_table(points)
    if study.differences:
        lines += ["", f"Different from the paper: {study.differences}"]
    return "\n".join(lines).rstrip() + "\n"


def verdict_table(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the verdicts as a Markdown table with an empty line after it; nothing if there are none."""
    if not verdicts:
        return []
    rows = [f"| {v.sentence} | **{v.answer}** | {v.numbers} |" for v in verdicts]
    return ["| claim | verdict | numbers |", "| --- | --- | --- |", *rows, ""]


def points_table(points: Sequence[Point]) -> list[str]:
    """Return our points as Markdown tables, one per network: mean and standard deviation over seeds."""
    cells: dict[tuple[str, str], dict[str, dict[float, list[float]]]] = {}
    for point in points:
        if point.is_ours:
            curves = cells.setdefault((point.network, point.data), defaultdict(lambda: defaultdict(list)))
            curves[point.method][point.sparsity].append(point.score)
    lines: list[str] = []
    score = common_task(points).score
    unit = ", in per cent" if score.unit == "%" else ""
    for (network, data), curves in cells.items():
        lines += ["", f"{score.title.capitalize()} of {network} on {data}{unit}:", ""]
        lines += [f"| sparsity | {' | '.join(curves)} |", "| --- |" + " --- |" * len(curves)]
        for sparsity in sorted({sparsity for curve in curves.values() for sparsity in curve}):
            shown = [_mean(score, curve[sparsity]) if sparsity in curve else "" for curve in curves.values()]
            lines.append(f"| {100 * sparsity:.4g} % | {' | '.join(shown)} |")
    return lines[1:]


def _mean(score: Score, values: Sequence[float]) -> str:
    mean = f"{score.factor * fmean(values):.{score.digits}f}"
    return f"{mean} ± {score.factor * stdev(values):.{score.digits}f}" if len(values) > 1 else mean
