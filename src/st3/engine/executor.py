"""Who runs a program: the compiled library, or torch where there is none."""

from typing import Any, Protocol

from torch import Tensor

from .program import Program
from .reference import interpret

__all__ = ["Executor", "InPlainTorch", "executor"]


class Executor(Protocol):
    """Runs one program."""

    program: Program

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the program's outputs; they belong to the caller."""

    def choices(self) -> list[Any]:
        """Return what was chosen for every step."""


class InPlainTorch:
    """Runs a program step by step in torch."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return interpret(self.program, *inputs)

    def choices(self) -> list[Any]:
        return []


def executor(program: Program, threads: int, tune: bool) -> Executor:
    """Return the fastest executor that this installation has."""
    return InPlainTorch(program)
