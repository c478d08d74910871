"""Points: one row per trained model and per published result, in a csv file from which everything else is made."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args

from ...atomic import write_text
from ..grid.index import FinishedRun

__all__ = ["OURS", "Point", "PointsError", "points_of_run", "read_points", "write_points"]

OURS = "ours"


class PointsError(ValueError):
    """A csv file that does not hold points."""


@dataclass(frozen=True)
class Point:
    """One result. Accuracy and sparsity are fractions, `macs` are multiply-adds of one forward pass."""

    source: str  # OURS, or the publication
    method: str  # the curve, such as "st3" or "lrr"
    network: str
    data: str
    sparsity: float
    accuracy: float
    macs: int | None = None
    seed: int | None = None
    epochs: int | None = None  # in all, those of earlier cycles included
    commit: str = ""
    run: str = ""  # identity of the run and, for a cycle, its folder inside the run's

    @property
    def is_ours(self) -> bool:
        return self.source == OURS


COLUMNS = tuple(field.name for field in fields(Point))


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
        target = part.get("target")
        yield Point(
            **known,
            sparsity=round(float(part["sparsity"] if target is None else target), 6),
            accuracy=float(part["test"]["accuracy"]),
            macs=int(part["sparse_macs"]),
            epochs=epochs,
            run="/".join([identity, part["folder"]] if "folder" in part else [identity]),
        )


def write_points(path: Path, points: Iterable[Point]) -> None:
    """Write the points, in a fixed order."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for point in sorted(set(points), key=_order):
        writer.writerow({name: "" if value is None else value for name, value in asdict(point).items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text.getvalue())


def read_points(path: Path) -> list[Point]:
    """Return the points of a csv file; raises if a column is missing or a number is not one."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise PointsError(
                    f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: a file of points has "
                    f"{', '.join(COLUMNS)}; delete it, and the next `st3 study draw` writes it anew from the runs"
                )
            return [_point(row, path, reader.line_num) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PointsError(f"cannot read points from {path}: {error}") from None


def _point(row: dict[str, str], path: Path, line: int) -> Point:
    values: dict[str, Any] = {}
    for field in fields(Point):
        text = row.get(field.name) or ""
        kinds: Sequence[Any] = get_args(field.type) or (field.type,)
        if text == "" and type(None) in kinds:
            values[field.name] = None
            continue
        try:
            values[field.name] = kinds[0](text)
        except ValueError:
            raise _bad_line(path, line, f"{field.name} must be a number, got {text!r}") from None
    for name in ("sparsity", "accuracy"):
        if not 0 <= values[name] <= 1:
            raise _bad_line(path, line, f"{name} must be between 0 and 1, got {values[name]:g}")
    return Point(**values)


def _bad_line(path: Path, line: int, fault: str) -> PointsError:
    return PointsError(f"{path}, line {line}: {fault}; correct the line or delete it")


def _order(point: Point) -> tuple[Any, ...]:
    who = (point.source != OURS, point.source, point.data, point.network, point.method)
    return (*who, point.sparsity, point.epochs or 0, point.seed or 0, point.accuracy, point.run)
