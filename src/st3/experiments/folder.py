"""The folder of a run: begun once, gone on with only by what belongs to it."""

import json
from pathlib import Path
from typing import Any

from ..training.process import Process
from ..training.records import write_json
from .spec import Spec, read_spec

__all__ = ["RunFolderError", "check", "claim", "finished_summary"]


class RunFolderError(ValueError):
    """The folder holds another run, or none."""


def check(spec: Spec, folder: Path, resume: bool, process: Process) -> Spec:
    """Return the spec to train, after checking that `folder` is free, or holds the run that is to be resumed.

    When a run is resumed, its machine settings (device, threads, workers) are those of the new call.
    """
    answer = ("", spec)
    if process.is_first:
        try:
            answer = ("", _check(spec, folder, resume))
        except (ValueError, OSError) as error:
            answer = (str(error), spec)
    fault, stored = process.share(answer)
    if fault:
        raise RunFolderError(fault)
    assert isinstance(stored, Spec)
    return stored


def claim(spec: Spec, folder: Path, process: Process) -> None:
    """Write the spec into the folder, unless it is there: from now on the folder belongs to this run."""
    if process.is_first and not (folder / "spec.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "spec.json", spec.model_dump(mode="json"))
    process.wait()


def finished_summary(folder: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run."""
    path = folder / "summary.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _check(spec: Spec, folder: Path, resume: bool) -> Spec:
    path = folder / "spec.json"
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or any(p.suffix != ".part" for p in folder.iterdir())):
            raise RunFolderError(f"{folder} holds other files and no run: choose another --run")
        return spec
    if not resume:
        raise RunFolderError(
            f"{folder} holds a run already: go on with it by --resume, or choose another --run"
        )
    stored = read_spec(path)
    if differences := spec.differences(stored):
        raise RunFolderError(
            f"{folder} holds another run ({'; '.join(differences)}): resume it without these options, or choose "
            f"another --run"
        )
    return stored.model_copy(update={"machine": spec.machine, "data": spec.data})
