"""Points: one row per trained model and per published result, in a csv file from which everything else is made."""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args

from ...atomic import write_text
from ...training.tasks import TASKS, Score, Task, name_of, task_of
from ..grid.index import FinishedRun

__all__ = ["OURS", "Point", "PointsError", "common_task", "points_of_run", "read_points", "write_points"]

OURS = "ours"


class PointsError(ValueError):
    """A csv file that does not hold points."""


@dataclass(frozen=True)
class Point:
    """One result. The sparsity is a fraction, `macs` are multiply-adds of one forward pass.

    In a csv file the score stands in a column of its own name, such as `accuracy`, a fraction.
    """

    source: str  # OURS, or the publication
    method: str  # the curve, such as "st3" or "lrr"
    network: str
    data: str
    sparsity: float
    score: float
    macs: int | None = None
    seed: int | None = None
    epochs: int | None = None  # in all, those of earlier cycles included
    commit: str = ""
    run: str = ""  # identity of the run and, for a cycle, its folder inside the run's
    task: str = "classification"  # whose score it is

    @property
    def is_ours(self) -> bool:
        return self.source == OURS


def columns(score: Score) -> list[str]:
    """Return the columns of a csv file of points with that score."""
    names = [field.name for field in fields(Point) if field.name != "task"]
    return [score.name if name == "score" else name for name in names]


def common_task(points: Iterable[Point]) -> Task:
    """Return the task of all points; raise if they are of several, whose scores cannot be compared."""
    names = sorted({point.task for point in points})
    if len(names) > 1:
        raise PointsError(f"scores of {' and '.join(names)} cannot be compared: give runs of one task")
    return TASKS[names[0] if names else "classification"]


def points_of_run(run: FinishedRun, series: str, identity: str) -> Iterator[Point]:
    """Yield what a finished run shows: one point, or one per cycle."""
    known: dict[str, Any] = {
        "source": OURS,
        "method": series,
        "network": run.spec.model.name,
        "data": run.spec.data.name,
        "seed": run.spec.seeds.init,
        "commit": str(run.versions.get("commit") or ""),
    }
    cycles, epochs = run.summary.get("cycles"), 0
    for part in cycles if isinstance(cycles, list) else [run.summary]:
        epochs += int(part["epochs"])
        target, task = part.get("target"), task_of(part["test"])
        yield Point(
            **known,
            sparsity=round(float(part["sparsity"] if target is None else target), 6),
            score=float(part["test"][task.score.name]),
            task=name_of(task),
            macs=int(part["sparse_macs"]),
            epochs=epochs,
            run="/".join([identity, part["folder"]] if "folder" in part else [identity]),
        )


def write_points(path: Path, points: Iterable[Point]) -> None:
    """Write the points, in a fixed order."""
    text, points = io.StringIO(), set(points)
    names = columns(common_task(points).score)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for point in sorted(points, key=_order):
        values = [value for name, value in asdict(point).items() if name != "task"]
        writer.writerow(["" if value is None else value for value in values])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text.getvalue())


def read_points(path: Path) -> list[Point]:
    """Return the points of a csv file; raises if a column is missing or a number is not one."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            found = dict.fromkeys(reader.fieldnames or ())
            task = task_of(found)
            wanted = columns(task.score)
            missing = [name for name in wanted if name not in found]
            if missing:
                raise PointsError(
                    f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: a file of points has "
                    f"{', '.join(wanted)}; delete it, and the next `st3 study draw` writes it anew from the runs"
                )
            return [_point(row, path, reader.line_num, task) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PointsError(f"cannot read points from {path}: {error}") from None


def _point(row: dict[str, str], path: Path, line: int, task: Task) -> Point:
    values: dict[str, Any] = {"task": name_of(task)}
    for field in fields(Point):
        if field.name == "task":
            continue
        column = task.score.name if field.name == "score" else field.name
        text = row.get(column) or ""
        kinds: Sequence[Any] = get_args(field.type) or (field.type,)
        if text == "" and type(None) in kinds:
            values[field.name] = None
            continue
        try:
            values[field.name] = kinds[0](text)
        except ValueError:
            raise _bad_line(path, line, f"{column} must be a number, got {text!r}") from None
    bounds = (("sparsity", "sparsity", 1.0), ("score", task.score.name, task.score.most or math.inf))
    for name, column, most in bounds:
        if not 0 <= values[name] <= most:
            raise _bad_line(path, line, f"{column} must be between 0 and {most:g}, got {values[name]:g}")
    return Point(**values)


def _bad_line(path: Path, line: int, fault: str) -> PointsError:
    return PointsError(f"{path}, line {line}: {fault}; correct the line or delete it")


def _order(point: Point) -> tuple[Any, ...]:
    who = (point.source != OURS, point.source, point.data, point.network, point.method)
    return (*who, point.sparsity, point.epochs or 0, point.seed or 0, point.score, point.run)
