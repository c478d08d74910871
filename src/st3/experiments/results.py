"""A run's folder as plain data, whether the run is finished or still going.

RUN/spec.json      everything that determines the run
RUN/epochs.jsonl   one line per finished epoch; steps.jsonl and layers.jsonl likewise
RUN/summary.json   the result, once the run is finished
RUN/dense/         a folder of the same kind: the dense twin, if one was trained
RUN/cycle-NN/      likewise, in a run of several cycles; its own epochs are then theirs, one after the other
"""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .cycles import PRUNE, cycle_folder, cycle_sparsities

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
    cycles: "tuple[Run, ...]" = ()  # those begun so far, if it is a run in cycles

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Run":
        """Read the run in folder `path`; a last line that is cut off in mid-write is left out."""
        folder = Path(path)
        _require_run(folder)
        twin = folder / "dense"
        run = _read(folder, _read(twin, None) if (twin / "spec.json").is_file() else None)
        return _joined(run) if run.is_in_cycles else run

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
    def is_in_cycles(self) -> bool:
        """Whether the run consists of cycles (and is not one of them)."""
        return isinstance(self.spec.get("cycles"), dict) and self.spec.get("cycle") is None

    @property
    def planned_cycles(self) -> int:
        if not self.is_in_cycles or self.target is None:
            return 1
        return len(cycle_sparsities(self.target, float(self.spec["cycles"].get("prune", PRUNE))))

    @property
    def planned_epochs(self) -> int | None:
        """Of all cycles together."""
        epochs = _section(self.spec, "recipe").get("epochs")
        return None if epochs is None else int(epochs) * self.planned_cycles

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


def _joined(run: Run) -> Run:
    """Return the run in cycles with their records as its own, as if it were one long training."""
    begun: list[Run] = []
    while (run.path / cycle_folder(len(begun)) / "spec.json").is_file():
        begun.append(_read(run.path / cycle_folder(len(begun)), None))
    epochs: list[Record] = []
    steps: list[Record] = []
    layers: list[Record] = []
    for cycle in begun:
        last = epochs[-1] if epochs else {}
        before = {key: last.get(key) or 0 for key in ("epoch", "step", "seconds")}
        epochs += _later(cycle.epochs, before)
        steps += _later(cycle.steps, before)
        layers += _later(cycle.layers, before)
    versions = begun[-1].versions if begun else {}
    return replace(run, epochs=epochs, steps=steps, layers=layers, versions=versions, cycles=tuple(begun))


def _later(records: list[Record], before: Record) -> list[Record]:
    return [
        record | {key: record[key] + start for key, start in before.items() if key in record}
        for record in records
    ]


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
    except RecursionError:
        raise ResultsError(f"damaged JSON: {path}, line {first_line}: nested too deeply") from None
    if not isinstance(record, dict):
        found = type(record).__name__
        raise ResultsError(f"damaged run: {path}, line {first_line}: expected a JSON object, found a {found}")
    return record
