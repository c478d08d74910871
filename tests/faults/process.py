"""A run in a process of its own that is killed at its N-th file operation, or that may write only small files.

    begin FOLDER kill 7 ...    begin a run and die at operation 7, then the same for the others
    begin FOLDER limit 20000   begin a run with files of at most 20,000 bytes

One process begins all runs, each in a child.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.runs import command, small_spec

from st3.experiments.run import train

__all__ = ["OPERATIONS", "begin"]

OPERATIONS = ("replace", "fsync", "unlink", "mkdir")
KILLED = 9


def _die_at(number: int) -> None:
    """Let this process end without any clean-up at the `number`-th file operation from now."""
    left = number

    def wrap(operation: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(KILLED)
            return operation(*arguments, **options)

        return counted

    for name in OPERATIONS:
        setattr(os, name, wrap(getattr(os, name)))


def _begin_and_die(folder: Path, number: int) -> None:
    child = os.fork()
    if child == 0:
        _die_at(number)
        train(small_spec(epochs=1), folder)
        os._exit(0)
    print(number, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _begin_with_limit(folder: Path, size: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    options = ("--epochs", 1, "--protocol", "single", "--device", "cpu", "--threads", 1)
    print(*command("train", "--run", folder, *options, "--quiet"))


def begin() -> None:
    """Do what the words on the command line ask for, and print what came of it."""
    place, what, *numbers = sys.argv[1:]
    for number in map(int, numbers):
        if what == "kill":
            _begin_and_die(Path(place, str(number)), number)
        else:
            _begin_with_limit(Path(place, str(number)), number)
