"""Who runs a program: the compiled library, or torch where there is none."""

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from torch import Tensor

from . import native
from .program import Program
from .reference import interpret
from .runtime import Choice, Runtime

__all__ = ["Executor", "NoKernelsWarning", "executor"]


class NoKernelsWarning(UserWarning):
    """The engine runs without its compiled kernels: right, but not faster than torch."""


class Executor(Protocol):
    """Runs one program."""

    @property
    def program(self) -> Program:
        """The program."""

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the program's outputs; they belong to the caller."""

    def choices(self) -> Sequence[Choice]:
        """Return what was chosen for every step, and what was measured."""


class InPlainTorch:
    """Runs a program step by step in torch."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return interpret(self.program, *inputs)

    def choices(self) -> Sequence[Choice]:
        return [Choice(step.name, type(step).__name__, "torch") for step in self.program]


def executor(program: Program, threads: int, tune: bool) -> Executor:
    """Return the fastest executor that this installation has."""
    try:
        native.kernels()
    except (native.NativeError, OSError) as error:  # none, or one that this system cannot load
        _warn_once(str(error))
        return InPlainTorch(program)
    return Runtime(program, threads=threads, tune=tune)


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(
        f"st3.engine runs in plain torch, which gains nothing from zeros: {reason}",
        NoKernelsWarning,
        stacklevel=6,  # who called compile
    )
