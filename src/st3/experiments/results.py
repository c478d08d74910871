"""A run's folder as plain data, whether the run is finished or still going.

The names of the files are in training/paths.py. A run may have several parts, as its protocol says; each has a folder
of the same kind inside the run's folder.
"""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..training.paths import EPOCHS, LAYERS, MODEL, SPEC, STEPS, SUMMARY, VERSIONS, is_part_folder
from ..training.sections import SettingsError, validate
from .arguments import build_or_none
from .old_specs import translate_spec
from .protocols import PROTOCOLS, Protocol
from .protocols.single import Single
from .spec import DENSE, Spec

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
    parts: "tuple[Run, ...]" = ()  # those that have begun and have their own folders, in order

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Run":
        """Read the run in folder `path`; a last line that is still being written is left out."""
        folder = Path(path)
        _require_run(folder)
        run = _read(folder)
        places = [place for place in folder.iterdir() if is_part_folder(place.name, run.protocol.kind)]
        places.sort(key=lambda place: (len(place.name), place.name))  # cycle-100 after cycle-99
        run = replace(run, parts=tuple(_read(place) for place in places if (place / SPEC).is_file()))
        return _join_records(run) if run.is_sequence else run

    @property
    def is_finished(self) -> bool:
        return self.summary is not None

    @property
    def model(self) -> str:
        return str(_section(self.spec, "model").get("name", "unknown model"))

    @property
    def model_path(self) -> Path:
        """Where the weights of the final model are, or will be."""
        return self.path / str((self.summary or {}).get("model") or MODEL)

    @property
    def data(self) -> str:
        return str(_section(self.spec, "data").get("name", "unknown data"))

    @property
    def method(self) -> str | None:
        """The sparse-training method, or None for a dense run."""
        method = _section(_section(self.spec, "sparse"), "method").get("name")
        return None if method in (None, DENSE) else str(method)

    @property
    def target(self) -> float | None:
        """The sparsity asked for; None for a dense run or a method without a target."""
        asked = _section(self.spec, "sparse").get("sparsity")
        return float(asked) if self.method is not None and asked is not None else None

    @property
    def protocol(self) -> Protocol:
        """The protocol; `single` if the stored one is not known."""
        section = _section(self.spec, "protocol")
        found = build_or_none(PROTOCOLS, str(section.get("name")), _section(section, "arguments"))
        return Single() if found is None else found

    @property
    def is_sequence(self) -> bool:
        """Whether the run consists of its parts, one after the other, and trains nothing itself."""
        return not self.protocol.trains_itself

    @property
    def twin(self) -> "Run | None":
        """The dense part that was trained to compare with."""
        return None if self.is_sequence else next((part for part in self.parts if part.method is None), None)

    @property
    def part_of(self) -> str:
        """What this is called as a part of a larger run, such as "cycle 3"; empty if it is not one."""
        return str(_section(self.spec, "part").get("title", ""))

    @property
    def planned_parts(self) -> int:
        """How many parts the epochs of this run come from."""
        if not self.is_sequence:
            return 1
        try:
            return len(self.protocol.parts(validate(Spec, self.spec, SPEC)))
        except SettingsError:
            return max(1, len(self.parts))

    @property
    def planned_epochs(self) -> int | None:
        """How many epochs the whole run has."""
        recipe = _section(self.spec, "recipe")
        if recipe.get("epochs") is None:
            return None
        epochs = int(recipe["epochs"]) * (2 if recipe.get("rewind") else 1) + int(
            recipe.get("freeze_epochs") or 0
        )
        return epochs * self.planned_parts

    @property
    def best(self) -> Record | None:
        """The record of the epoch whose model is the result: the best in validation among those at the target."""
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
    if not (folder / SPEC).is_file():
        below = sorted(path.parent.name for path in folder.glob(f"*/{SPEC}"))
        hint = f"; runs one level below: {', '.join(below)}" if below else ""
        raise ResultsError(f"no run in {folder}: it holds no {SPEC}{hint}")


def _read(folder: Path) -> Run:
    return Run(
        path=folder,
        spec=translate_spec(_read_json(folder / SPEC) or {}),
        epochs=_read_lines(folder / EPOCHS),
        steps=_read_lines(folder / STEPS),
        layers=_read_lines(folder / LAYERS),
        summary=_read_json(folder / SUMMARY),
        versions=_read_json(folder / VERSIONS) or {},
    )


def _join_records(run: Run) -> Run:
    """Return the run with the records of its parts as its own, as if it were one long training."""
    epochs: list[Record] = []
    steps: list[Record] = []
    layers: list[Record] = []
    for part in run.parts:
        last = epochs[-1] if epochs else {}
        before = {key: last.get(key) or 0 for key in ("epoch", "step", "seconds")}
        epochs += _shift(part.epochs, before)
        steps += _shift(part.steps, before)
        layers += _shift(part.layers, before)
    versions = run.parts[-1].versions if run.parts else {}
    return replace(run, epochs=epochs, steps=steps, layers=layers, versions=versions)


def _shift(records: list[Record], before: Record) -> list[Record]:
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
            if number == len(lines):  # without a line end: still being written, or the writer was killed
                break
            raise
        if not isinstance(records[-1].get("epoch"), int | float):
            raise ResultsError(f'damaged run: {path}, line {number} has no number "epoch"')
    return records


def _parse(content: bytes, path: Path, first_line: int = 1) -> Record:
    try:
        # We never write NaN; one from another program counts as missing.
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
