"""Print expected errors and warnings as short messages, without a traceback."""

import contextlib
import errno
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import typer

from .hints import add_hint

__all__ = ["Debug", "explain_errors", "is_first_process"]

HOUSE = Path(__file__).parents[1]
DEBUG = "st3.debug"
PAUSE = 3.0  # seconds for the first process to print its message

# A full disk, a folder without permission to write, a name that is taken: for the user to solve, not bugs.
WRITERS_ERRNO = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
USERS_ERRNO = (
    *WRITERS_ERRNO, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG,
)  # fmt: skip


def _note_debug(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[DEBUG] = True


Debug = typer.Option("--debug", callback=_note_debug, metavar="", help="Show the traceback of an error.")


def is_first_process() -> bool:
    """Return whether this is the process that prints."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def explain_errors(ctx: typer.Context) -> Iterator[None]:
    """Print an expected error as one message and exit with code 1; print our warnings as one line each."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            yield
        except Exception as error:
            add_hint(error)
            if isinstance(error, typer.Exit | typer.Abort) or _is_debugging(ctx):
                raise
            message = _message(error)
            if message is None:
                raise
            _print_error(message, error)
            raise typer.Exit(1) from None


def _is_debugging(ctx: typer.Context) -> bool:
    return bool(ctx.meta.get(DEBUG)) or os.environ.get("ST3_DEBUG", "0") not in ("", "0")


def _message(error: Exception) -> str | None:
    """Return the message for the user; None if the error was not expected."""
    from ..training.sections import SettingsError

    if isinstance(error, SettingsError):
        return _list_faults(error)
    if isinstance(error, _named_errors()):
        return str(error)
    if (
        isinstance(error, MemoryError)
        or "can't allocate memory" in str(error)
        or "out of memory" in str(error)
    ):
        reason = " ".join(str(error).split())[:200]
        return f"not enough memory: take a smaller batch, input or network, or fewer workers ({reason})"
    if isinstance(error, OSError) and error.errno in USERS_ERRNO:
        deed = "write" if error.errno in WRITERS_ERRNO else "open"
        return f"cannot {deed} {error.filename or 'a file'}: {error.strerror}"
    # The core refuses bad input with plain types. A subclass such as KeyError would be a bug of ours.
    if type(error) in (ValueError, LookupError, ImportError) and _was_raised_in(error, HOUSE):
        return str(error)
    return None


def _named_errors() -> tuple[type[Exception], ...]:
    from ..core.errors import CheckpointError, TargetMissedError, WeightsReplacedError
    from ..data.errors import DataError
    from ..experiments.evidence.points import PointsError
    from ..experiments.folder import RunFolderError
    from ..experiments.grid.schedule import WorkersError
    from ..experiments.results import ResultsError
    from ..experiments.run import ProcessLostError
    from ..files.tracing import ExportError
    from ..files.weights import WeightsError
    from ..training.metrics import DivergedError

    return (
        CheckpointError,
        DataError,
        DivergedError,
        ExportError,
        PointsError,
        ProcessLostError,
        ResultsError,
        RunFolderError,
        TargetMissedError,
        WeightsError,
        WeightsReplacedError,
        WorkersError,
    )


def _list_faults(error: Any) -> str:
    """Return what is wrong with the settings, one line for each fault."""
    what = str(error).removesuffix("; ".join(error.faults)).removesuffix(": ")
    if len(error.faults) == 1:
        return f"{what}: {error.faults[0]}"
    return "\n".join([f"{what}:", *(f"  {fault}" for fault in error.faults)])


def _was_raised_in(error: BaseException, folder: Path) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and Path(trace.tb_frame.f_code.co_filename).is_relative_to(folder)


def _print_error(message: str, error: Exception) -> None:
    """Print the message; in a process that is not the first, only if the first may not have the same error."""
    from ..experiments.folder import RunFolderError
    from ..training.metrics import DivergedError
    from ..training.sections import SettingsError

    if is_first_process():
        print(f"error: {message}", file=sys.stderr)
    elif isinstance(error, SettingsError | RunFolderError | DivergedError):
        time.sleep(PAUSE)  # all have the same error, and torchrun ends the others as soon as one has failed
    else:
        print(f"error in process {os.environ['RANK']}: {message}", file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    is_ours = category.__module__.partition(".")[0] == "st3" or Path(filename).is_relative_to(HOUSE)
    text = (
        f"warning: {message}\n"
        if is_ours
        else warnings.formatwarning(message, category, filename, lineno, line)
    )
    if is_first_process():
        sys.stderr.write(text)
