"""The runs in a folder, found by what determines them, whatever they are called and wherever they were trained."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...training.paths import SPEC, SUMMARY, SWITCHES, VERSIONS
from ...training.sections import SettingsError
from ...training.tasks import task_of
from ..essence import identity
from ..folder import RunFolderError, read_summary
from ..spec import Spec, read_spec
from .wanted import Wanted

__all__ = ["FinishedRun", "Index"]


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: its spec and summary."""

    folder: Path
    spec: Spec
    summary: dict[str, Any]

    @cached_property
    def versions(self) -> dict[str, Any]:
        """Software and machine of its last session; empty if they are not known."""
        for place in (self.folder, *sorted(self.folder.glob(f"*/{VERSIONS}"))[-1:]):
            path = place if place.is_file() else place / VERSIONS
            if path.is_file():
                return _read_json(path)
        return {}

    @cached_property
    def switches(self) -> dict[str, Any]:
        """The histograms of switches per weight, if they were counted."""
        path = self.folder / SWITCHES
        return _read_json(path) if path.is_file() else {}


class Index:
    """All runs below a folder, by identity."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults: list[str] = []  # of runs that are left out
        self._places: dict[str, list[tuple[Path, Spec]]] = {}
        for path in sorted(folder.glob(f"*/{SPEC}")):
            try:
                spec = read_spec(path)
                self._places.setdefault(identity(spec), []).append((path.parent, spec))
            except (SettingsError, LookupError, TypeError) as error:
                self.faults.append(f"{path.parent} is left out: {error}")

    def find(self, wanted: Wanted) -> FinishedRun | None:
        """Return the finished run that is wanted, if there is one."""
        return next(self._finished(wanted), None)

    def place(self, wanted: Wanted) -> Path:
        """Return where to train what is wanted: where it was begun, or a new folder."""
        begun = [place for place, spec in self._places.get(wanted.identity, ()) if _records(spec, wanted)]
        return begun[0] if begun else self.folder / wanted.folder

    def _leave_out(self, fault: str) -> None:
        if fault not in self.faults:
            self.faults.append(fault)

    def _finished(self, wanted: Wanted) -> Iterator[FinishedRun]:
        for place, spec in self._places.get(wanted.identity, ()):
            try:
                summary = read_summary(place)
            except RunFolderError as error:
                self._leave_out(str(error))
                continue
            if summary is None or not _records(spec, wanted):
                continue
            if _is_complete(summary):
                yield FinishedRun(place, spec, summary)
            else:
                self._leave_out(f"{place / SUMMARY} lacks the score, epochs or multiply-adds of the run")


def _is_complete(summary: dict[str, Any]) -> bool:
    """Return whether a summary, or each of its cycles, has the numbers of a point."""
    cycles = summary.get("cycles")
    for part in cycles if isinstance(cycles, list) else [summary]:
        try:
            (
                float(part["test"][task_of(part["test"]).score.name]),
                float(part["sparsity"]),
                int(part["epochs"]),
                int(part["sparse_macs"]),
            )
        except (KeyError, TypeError, ValueError):
            return False
    return True


def _records(spec: Spec, wanted: Wanted) -> bool:
    """Return whether a run has recorded what is wanted beside its result."""
    return not wanted.windows or spec.record.switch_windows == wanted.windows


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
