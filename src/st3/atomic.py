"""Atomic file writes: a reader finds the old file or the complete new one, even after a crash or a power cut."""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

__all__ = ["write_file", "write_text"]


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file in the same folder, sync it to disk, then rename it to `path`."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
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
        with contextlib.suppress(OSError):  # the folder may not exist either
            scratch.unlink()


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8; characters that UTF-8 cannot encode (undecodable file names) become question marks."""
    write_file(path, lambda file: file.write(text.encode(errors="replace")))


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the new name survives a power cut, on systems that can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
