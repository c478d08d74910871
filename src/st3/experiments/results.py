"""A run's folder as plain data, whether the run is finished or still going.

RUN/spec.json      everything that determines the run
RUN/epochs.jsonl   one line per finished epoch; steps.jsonl and layers.jsonl likewise
RUN/summary.json   the result, once the run is finished
RUN/dense/         a folder of the same kind: the dense twin, if one was trained
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ResultsError", "Run"]

Record = dict[str, Any]


class ResultsError(ValueError):
    """A folder that holds no run, or a damaged one."""


@dataclass(frozen=True)
class Run:
    """What a run has written so far; `Run.open(path)` reads it."""

    path: Path
    spec: Record
    epochs: list[Record]  # one per finished epoch
    steps: list[Record]
    layers: list[Record]  # one per finished epoch; none for a dense run
    summary: Record | None  # None: not finished
    versions: Record
    dense: "Run | None" = None  # the dense twin

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Run":
        """Read the run in folder `path`; a last line that is cut off in mid-write is left out."""
        folder = Path(path)
        _require_run(folder)
        twin = folder / "dense"
        return _read(folder, _read(twin, None) if (twin / "spec.json").is_file() else None)

    @property
    def is_finished(self) -> bool:
        return self.summary is not None

    @property
    def model(self) -> str:
        return str(_section(self.spec, "model").get("name", "unknown model"))

    @property
    def data(self) -> str:
        return str(_section(self.spec, "data").get("name", "unknown data"))

    @property
    def method(self) -> str | None:
        """The sparse-training method, or None for a dense run."""
        method = _section(self.spec, "sparse").get("method")
        return None if method in (None, "dense") else str(method)

    @property
    def target(self) -> float | None:
        """The sparsity asked for, or None for a dense run."""
        asked = _section(self.spec, "sparse").get("sparsity")
        return float(asked) if self.method is not None and asked is not None else None

    @property
    def planned_epochs(self) -> int | None:
        return _section(self.spec, "recipe").get("epochs")

    @property
    def best(self) -> Record | None:
        """The record of the epoch whose model counts: the best in validation, once as sparse as asked."""
        return next((epoch for epoch in reversed(self.epochs) if epoch.get("is_best")), None)


def _section(spec: Record, name: str) -> Record:
    section = spec.get(name)
    return section if isinstance(section, dict) else {}


def _require_run(folder: Path) -> None:
    if not folder.is_dir():
        found = "it is a file" if folder.exists() else "there is no such folder"
        raise ResultsError(
            f"cannot read a run from {folder}: {found}; give the folder that the run was written to"
        )
    if not (folder / "spec.json").is_file():
        below = sorted(path.parent.name for path in folder.glob("*/spec.json"))
        hint = f"; runs one level below: {', '.join(below)}" if below else ""
        raise ResultsError(f"no run in {folder}: it holds no spec.json{hint}")


def _read(folder: Path, dense: Run | None) -> Run:
    return Run(
        path=folder,
        spec=_read_json(folder / "spec.json") or {},
        epochs=_read_lines(folder / "epochs.jsonl"),
        steps=_read_lines(folder / "steps.jsonl"),
        layers=_read_lines(folder / "layers.jsonl"),
        summary=_read_json(folder / "summary.json"),
        versions=_read_json(folder / "versions.json") or {},
        dense=dense,
    )


def _read_json(path: Path) -> Record | None:
    return _parse(path.read_bytes(), path) if path.is_file() else None


def _read_lines(path: Path) -> list[Record]:
    """Return the records of a JSON-lines file; a missing file has none."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(_parse(line, path, number))
        except ResultsError:
            if number == len(lines):  # no line end follows: the writer is not done with it, or was killed
                break
            raise
        if not isinstance(records[-1].get("epoch"), int | float):
            raise ResultsError(f'damaged run: {path}, line {number} has no number "epoch"')
    return records


def _parse(content: bytes, path: Path, first_line: int = 1) -> Record:
    try:
        # Our writer knows no NaN; should another write one, it is a figure that is missing.
        record = json.loads(content.decode(), parse_constant=lambda _name: None)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise ResultsError(f"damaged JSON: {path}, line {line}: {error.msg} (column {error.colno})") from None
    except UnicodeDecodeError as error:
        line = first_line + content[: error.start].count(b"\n")
        raise ResultsError(f"damaged JSON: {path}, line {line}: not UTF-8") from None
    if not isinstance(record, dict):
        found = type(record).__name__
        raise ResultsError(f"damaged run: {path}, line {first_line}: expected a JSON object, found a {found}")
    return record
