"""Optimise a program; results change by rounding at most.

forms           one form of images and rows, whatever the model is written in
fusing          two steps as one: batch norms and padding, activations and residual additions, torch steps
dead_channels   channels that are constant or unread are removed
"""

from ..program import Program
from .dead_channels import drop_dead_channels
from .forms import use_twins
from .fusing import fold, fuse

__all__ = ["optimise"]


def optimise(program: Program) -> Program:
    """Drop unread steps, use twins, fold, fuse, drop dead channels."""
    return drop_dead_channels(fuse(fold(use_twins(program.without_unread_steps()))))
