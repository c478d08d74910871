"""Choose what runs a program: the compiled library, or torch if there is none."""

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from torch import Tensor

from . import native
from .program import Program
from .reference import interpret
from .runtime import Choice, Runtime

__all__ = ["Executor", "NoKernelsWarning", "make_executor"]


class NoKernelsWarning(UserWarning):
    """The engine runs without its compiled kernels: correct, but no faster than torch."""


class Executor(Protocol):
    """Runs one program."""

    @property
    def program(self) -> Program:
        """The program."""

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the program's outputs; they belong to the caller."""

    def choices(self) -> Sequence[Choice]:
        """Return the kernel chosen for every step, and the times measured."""


class TorchExecutor:
    """Runs a program step by step in torch."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return interpret(self.program, *inputs)

    def choices(self) -> Sequence[Choice]:
        return [Choice(step.name, type(step).__name__, "torch") for step in self.program]


def make_executor(program: Program, threads: int, tune: bool) -> Executor:
    """Return a runtime with compiled kernels; without them, warn and return a torch executor."""
    try:
        native.kernels()
    except (native.NativeError, OSError) as error:  # no library, or one that this system cannot load
        _warn_once(str(error))
        return TorchExecutor(program)
    return Runtime(program, threads=threads, tune=tune)


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(
        f"st3.engine runs in plain torch, which gains nothing from zeros: {reason}",
        NoKernelsWarning,
        stacklevel=6,  # the caller of compile
    )
