"""A run's folder as plain data, whether the run is finished or still going.

The names of the files are in training/paths.py. A run may have several parts, as its protocol says; each has a folder
of the same kind inside the run's folder.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ..training.paths import EPOCHS, LAYERS, MODEL, SPEC, STEPS, SUMMARY, VERSIONS, is_part_folder
from ..training.records import count_missing
from ..training.sealed import parse, parse_lines
from ..training.sections import SettingsError, validate
from ..training.tasks import Task, task_of
from .arguments import build_or_none
from .old_specs import translate_spec
from .protocols import PROTOCOLS, Protocol
from .protocols.single import Single
from .record_types import EpochRecord, LayersRecord, SpecRecord, StepRecord, SummaryRecord, find_fault
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
    def task(self) -> Task:
        """What the network was trained to do: its records hold the score of that task."""
        last = self.epochs[-1] if self.epochs else self.summary or {}
        return task_of(_section(last, "validation"))

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
    summary = _read_object(folder / SUMMARY, SummaryRecord)
    run = Run(
        path=folder,
        spec=_read_spec(folder / SPEC),
        epochs=_read_lines(folder / EPOCHS, EpochRecord),
        steps=_read_lines(folder / STEPS, StepRecord),
        layers=_read_lines(folder / LAYERS, LayersRecord),
        summary=summary,
        versions=_read_object(folder / VERSIONS) or {},
    )
    if summary is not None:
        _require_lines(run, summary)
    return run


def _require_lines(run: Run, summary: Record) -> None:
    """Raise if a file lacks lines that a finished run must have; runs may be kept without a whole file."""
    step, epoch = summary.get("steps") or 0, summary.get("epochs") or 0
    for name, records in ((EPOCHS, run.epochs), (STEPS, run.steps), (LAYERS, run.layers)):
        path = run.path / name
        if path.is_file() and (missing := count_missing(name, records, step, epoch)):
            raise ResultsError(
                f"damaged run: {path} lacks {missing:,} lines: restore it, or delete it to go on without"
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


def _read_spec(path: Path) -> Record:
    content = _read_object(path) or {}
    try:
        spec = translate_spec(content)
    except ValueError as error:
        raise ResultsError(f"damaged run: {path}: {error}") from None
    if fault := find_fault(SpecRecord, spec):
        raise ResultsError(f"damaged run: {path}: {fault}")
    return spec


def _read_object(path: Path, kind: type[BaseModel] | None = None) -> Record | None:
    """Return the content of a JSON file, None if there is none."""
    if not path.is_file():
        return None
    try:
        content = parse(path.read_bytes())
    except ValueError as error:
        remedy = (
            ": delete it, and st3 train --run FOLDER --resume writes it again" if path.name == SUMMARY else ""
        )
        raise ResultsError(f"damaged JSON: {path}, {error}{remedy}") from None
    if kind is not None and (fault := find_fault(kind, content)):
        raise ResultsError(f"damaged run: {path}: {fault}")
    return content


def _read_lines(path: Path, kind: type[BaseModel]) -> list[Record]:
    """Return the records of a JSON-lines file; a missing file has none."""
    lines = list(parse_lines(path.read_bytes())) if path.is_file() else []
    for line in lines:
        if line.fault:
            raise ResultsError(f"damaged JSON: {path}, line {line.number}: {line.fault}")
        if fault := find_fault(kind, line.content):
            raise ResultsError(f"damaged run: {path}, line {line.number}: {fault}")
    return [line.content for line in lines]
