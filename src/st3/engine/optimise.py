"""Optimise a program; results change by rounding at most."""

from .channels import drop_dead_channels
from .folding import drop_unread_steps, fold
from .fusing import fuse
from .program import Program

__all__ = ["optimise"]


def optimise(program: Program) -> Program:
    """Drop unread steps, fold, fuse, drop dead channels."""
    return drop_dead_channels(fuse(fold(drop_unread_steps(program))))
