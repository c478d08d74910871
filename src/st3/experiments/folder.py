"""The folder of a run: never overwritten, resumed by the same run only, used by one process at a time."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ..atomic import remove_leftovers
from ..training.paths import LOCK, SPEC, SUMMARY
from ..training.process import Process
from ..training.records import write_json
from ..training.sealed import parse
from .essence import differences
from .record_types import FinishedRecord, find_fault
from .spec import Spec, read_spec

__all__ = [
    "FolderInUseError",
    "RunFolderError",
    "check_folder",
    "claim_folder",
    "is_in_use",
    "read_summary",
    "write_spec",
]


class RunFolderError(ValueError):
    """The folder cannot be used for this run."""


class FolderInUseError(RunFolderError):
    """Another process is training into the folder."""


def check_folder(spec: Spec, folder: Path, resume: bool, process: Process) -> None:
    """Raise unless `folder` is free or, to `resume`, holds a run with the same essence."""
    fault = ""
    if process.is_first:
        try:
            _check(spec, folder, resume)
        except (ValueError, OSError) as error:
            fault = _explain(error, folder)
    if fault := process.share(fault):
        raise RunFolderError(fault)


@contextlib.contextmanager
def claim_folder(spec: Spec, folder: Path, resume: bool, process: Process) -> Iterator[None]:
    """Lock `folder` for this run and write its spec; the lock ends with the context."""
    fault, is_in_use, lock = "", False, None
    if process.is_first:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = _lock(folder)
            if not resume and (folder / SPEC).exists():
                raise RunFolderError(f"another run has just begun in {folder}: choose another --run")
            write_spec(spec, folder)
            remove_leftovers(folder)
        except (ValueError, OSError) as error:
            fault, is_in_use = _explain(error, folder), isinstance(error, FolderInUseError)
    fault, is_in_use = process.share((fault, is_in_use))
    try:
        if fault:
            raise (FolderInUseError if is_in_use else RunFolderError)(fault)
        yield
    except FileNotFoundError:
        if (folder / SPEC).exists():
            raise
        raise RunFolderError(
            f"the run in {folder} was moved or deleted while it was training: continue it in its new place: "
            f"st3 train --run FOLDER --resume"
        ) from None
    finally:
        if lock is not None:
            lock.close()


def _explain(error: ValueError | OSError, folder: Path) -> str:
    if not isinstance(error, OSError):
        return str(error)
    return f"cannot use {folder} for a run: {error.strerror or error}; choose another --run"


def write_spec(spec: Spec, folder: Path) -> None:
    """Write the spec into the folder, unless there is one."""
    if not (folder / SPEC).exists():
        folder.mkdir(exist_ok=True)
        write_json(folder / SPEC, spec.model_dump(mode="json"))


def _lock(folder: Path) -> IO[str] | None:
    """Lock the folder against other processes; the lock ends with this process, even if that is killed."""
    try:
        import fcntl
    except ImportError:
        return None  # this system has no such locks
    file = (folder / LOCK).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            return None  # this file system has no locks
        raise FolderInUseError(
            f"another process is training into {folder}: wait for it, or choose another --run"
        ) from None
    return file


def is_in_use(folder: Path) -> bool:
    """Return whether a process is training into the folder at this moment."""
    try:
        lock = _lock(folder)
    except FolderInUseError:
        return True
    except OSError:
        return False  # there is no such folder yet
    if lock is not None:
        lock.close()
    return False


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run; None if it is not finished."""
    path = folder / SUMMARY
    if not path.exists():
        return None
    summary: dict[str, Any] = {}
    try:
        summary = parse(path.read_bytes())
        fault = find_fault(FinishedRecord, summary)
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        fault = str(error)
    if fault:
        raise RunFolderError(f"{path} is damaged ({fault}): delete it, and --resume writes it again")
    return summary


def _check(spec: Spec, folder: Path, resume: bool) -> None:
    path = folder / SPEC
    if not path.exists():
        if folder.exists() and (
            not folder.is_dir() or any(not p.name.startswith(".") for p in folder.iterdir())
        ):
            raise RunFolderError(f"{folder} holds other files and no run: choose another --run")
        return
    if not resume:
        raise RunFolderError(
            f"{folder} already holds a run: add --resume to continue it, or choose another --run"
        )
    if found := differences(spec, read_spec(path)):
        raise RunFolderError(
            f"{folder} holds another run ({'; '.join(found)}): resume it without these options, or choose "
            f"another --run"
        )
