"""All that is done to a program before it runs; none of it changes a result by more than rounding."""

from .channels import drop_dead_channels
from .folding import fold, without_unread
from .fusing import fuse
from .program import Program

__all__ = ["optimise"]


def optimise(program: Program) -> Program:
    """Drop what is not read, fold, fuse, drop dead channels."""
    return drop_dead_channels(fuse(fold(without_unread(program))))
