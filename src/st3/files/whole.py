"""Files that appear complete, or not at all: written beside, synced to disk, then renamed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

__all__ = ["write_text", "write_whole"]


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a scratch file, then put it in place; a power cut leaves the old file or the new one."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with scratch.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        _sync_folder(path.parent)
    except Exception as error:
        # torch.save reports a full disk as an error of its own, with the real one behind it.
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        if cause.errno is not None and cause.filename in (None, str(scratch)):
            # what was asked for, not our scratch file
            raise OSError(cause.errno, cause.strerror, str(path)) from None
        raise cause from None
    finally:
        scratch.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8; what has no code there (names of odd files) becomes a question mark."""
    write_whole(path, lambda file: file.write(text.encode(errors="replace")))


def _sync_folder(folder: Path) -> None:
    """Let the new name reach the disk, too, where folders can be synced."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
