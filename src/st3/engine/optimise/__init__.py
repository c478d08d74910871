"""Optimise a program; results change by rounding at most.

forms           one form of images and rows, whatever the model is written in
fusing          two steps as one: batch norms and padding, activations and residual additions, torch steps
dead_channels   channels that are constant or unread are removed

quantise        convolutions in int8, where ranges were measured: results change by the rounding to bytes
"""

from ..program import Program
from .dead_channels import drop_dead_channels
from .forms import use_twins
from .fusing import fold, fuse
from .quantise import Ranges, quantise

__all__ = ["Ranges", "optimise", "quantise"]


def optimise(program: Program) -> Program:
    """Drop unread steps, use twins, fold, fuse, drop dead channels."""
    return drop_dead_channels(fuse(fold(use_twins(program.without_unread_steps()))))
