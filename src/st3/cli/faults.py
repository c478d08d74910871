"""Errors and warnings as a reader wants them: what is wrong and what to do, without a traceback."""

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

__all__ = ["Debug", "explained", "is_first_process"]

HOUSE = Path(__file__).parents[1]
DEBUG = "st3.debug"
PAUSE = 3.0  # seconds for the first process to print its message

# Raised by a full disk, a folder that may not be written to or a name that is taken: the user's to solve, not a fault
# of the program.
USERS_ERRNO = (
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM,
    errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG,
)  # fmt: skip


def _note_debug(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[DEBUG] = True


Debug = typer.Option("--debug", callback=_note_debug, metavar="", help="Show the traceback of an error.")


def is_first_process() -> bool:
    """Return whether this is the process that talks to the user."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def explained(ctx: typer.Context) -> Iterator[None]:
    """Print expected errors as one message, leave with code 1; others pass. Our warnings become one line each."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            yield
        except Exception as error:
            if isinstance(error, typer.Exit | typer.Abort) or _is_debugged(ctx):
                raise
            message = _message(error)
            if message is None:
                raise
            _print_error(message, error)
            raise typer.Exit(1) from None


def _is_debugged(ctx: typer.Context) -> bool:
    return bool(ctx.meta.get(DEBUG)) or os.environ.get("ST3_DEBUG", "0") not in ("", "0")


def _message(error: Exception) -> str | None:
    """Return the text for the user; None if this error was not raised for the user's eyes."""
    from ..training.sections import SettingsError

    if isinstance(error, SettingsError):
        return _listed(error)
    if isinstance(error, _named_errors()):
        return str(error)
    if isinstance(error, OSError) and error.errno in USERS_ERRNO:
        return f"cannot write {error.filename or 'a file'}: {error.strerror}"
    # The core refuses bad input with plain types. A subclass such as KeyError would be a mistake of ours.
    if type(error) in (ValueError, LookupError, ImportError) and _was_raised_in(error, HOUSE):
        return str(error)
    return None


def _named_errors() -> tuple[type[Exception], ...]:
    from ..core.errors import CheckpointError, TargetMissedError, WeightsReplacedError
    from ..data.errors import DataError
    from ..experiments.folder import RunFolderError
    from ..experiments.results import ResultsError
    from ..experiments.run import ProcessLostError
    from ..files.tracing import ExportError
    from ..files.weights import WeightsError
    from ..training.figures import DivergedError

    return (
        CheckpointError,
        DataError,
        DivergedError,
        ExportError,
        ProcessLostError,
        ResultsError,
        RunFolderError,
        TargetMissedError,
        WeightsError,
        WeightsReplacedError,
    )


def _listed(error: Any) -> str:
    """Return what is wrong with the settings, every fault on a line of its own."""
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
    """Print from the first process; from another one only what the first may not know."""
    from ..experiments.folder import RunFolderError
    from ..training.figures import DivergedError
    from ..training.sections import SettingsError

    if is_first_process():
        print(f"error: {message}", file=sys.stderr)
    elif isinstance(error, SettingsError | RunFolderError | DivergedError):
        time.sleep(PAUSE)  # the same in all processes; torchrun ends the others as soon as one has failed
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
