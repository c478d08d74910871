"""The folder of a run: begun once, gone on with only by what belongs to it."""

import contextlib
import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ..training.process import Process
from ..training.records import write_json
from .spec import Spec, read_spec

__all__ = ["RunFolderError", "check", "claimed", "finished_summary", "write_spec"]


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
            answer = (_told(error, folder), spec)
    fault, stored = process.share(answer)
    if fault:
        raise RunFolderError(fault)
    assert isinstance(stored, Spec)
    return stored


@contextlib.contextmanager
def claimed(spec: Spec, folder: Path, resume: bool, process: Process) -> Iterator[None]:
    """Hold `folder` for this run alone, with its spec in it, until the run is done or given up."""
    fault, lock = "", None
    if process.is_first:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = _lock(folder)
            if not resume and (folder / "spec.json").exists():
                raise RunFolderError(f"{folder} was just taken by another run: choose another --run")
            write_spec(spec, folder)
        except (ValueError, OSError) as error:
            fault = _told(error, folder)
    fault = process.share(fault)
    try:
        if fault:
            raise RunFolderError(fault)
        yield
    finally:
        if lock is not None:
            lock.close()


def _told(error: ValueError | OSError, folder: Path) -> str:
    if not isinstance(error, OSError):
        return str(error)
    return f"cannot use {folder} for a run: {error.strerror or error}; choose another --run"


def write_spec(spec: Spec, folder: Path) -> None:
    """Write the spec into the folder, unless it is there."""
    if not (folder / "spec.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "spec.json", spec.model_dump(mode="json"))


def _lock(folder: Path) -> IO[str] | None:
    """Lock the folder against other processes; the lock ends with this process, however that ends."""
    try:
        import fcntl
    except ImportError:
        return None  # no such locks on this system
    file = (folder / ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            return None  # a file system without locks
        raise RunFolderError(
            f"another process is training into {folder}: wait for it, or choose another --run"
        ) from None
    return file


def finished_summary(folder: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        fault = "" if isinstance(summary, dict) else f"a {type(summary).__name__} instead of a table"
    except (OSError, ValueError, RecursionError) as error:
        fault = str(error)
    if fault:
        raise RunFolderError(f"{path} is damaged ({fault}): delete it, and --resume writes it again")
    return dict(summary)


def _check(spec: Spec, folder: Path, resume: bool) -> Spec:
    path = folder / "spec.json"
    if not path.exists():
        if folder.exists() and (
            not folder.is_dir() or any(not p.name.startswith(".") for p in folder.iterdir())
        ):
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
