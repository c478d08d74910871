"""Atomic file writes: a reader finds the old file or the complete new one, even after a crash or a power cut.

A process that is killed while writing leaves .NAME.PROCESS-THREAD.part behind. The next one to write NAME removes it.
"""

import contextlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

__all__ = ["remove_leftovers", "write_file", "write_text"]

SCRATCH = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)-\d+\.part")


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file in the same folder, sync it to disk, then rename it to `path`."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        _remove_leftovers_of(path)
        with scratch.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        _sync_folder(path.parent)
    except Exception as error:
        # torch.save wraps the OSError of a full disk in an error of its own.
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        if cause.errno is not None and cause.filename in (None, str(scratch)):
            # Name the file that was asked for, not the temporary one.
            raise OSError(cause.errno, cause.strerror, str(path)) from None
        raise cause from None
    finally:
        _remove(scratch)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8; characters that UTF-8 cannot encode (undecodable file names) become question marks."""
    write_file(path, lambda file: file.write(text.encode(errors="replace")))


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writers have left in `folder` and below it. This process must not be writing there."""
    for place, _, names in os.walk(folder):
        for name in names:
            found = SCRATCH.fullmatch(name)
            if found and not _is_another(int(found["process"])):
                _remove(Path(place, name))


def _remove_leftovers_of(path: Path) -> None:
    """Remove what killed writers of this file have left; another thread of this process may be writing it, too."""
    with contextlib.suppress(OSError):  # without the folder, writing fails as well
        for name in os.listdir(path.parent):
            found = SCRATCH.fullmatch(name)
            if found and found["name"] == path.name:
                process = int(found["process"])
                if process != os.getpid() and not _is_another(process):
                    _remove(path.parent / name)


def _is_another(process: int) -> bool:
    """Whether a process with this number is running, and it is not this one."""
    if process == os.getpid():
        return False
    if os.name != "posix":
        return True  # there is no safe way to ask
    try:
        os.kill(process, 0)  # sends nothing, only asks
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it belongs to another user
    return True


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # it may be gone already, with its folder
        path.unlink()


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new name survives a power cut, on systems that can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
