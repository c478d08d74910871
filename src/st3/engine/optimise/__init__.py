"""Optimise a program; results change by rounding at most.

folding         batch norms and padding into layers
fusing          activations and residual additions into the step before, torch steps with one another
channels        the channel axis of every value, and which channels are constant
dead_channels   channels that are constant or unread are removed
"""

from ..program import Program
from .dead_channels import drop_dead_channels
from .folding import fold
from .forms import use_twins
from .fusing import fuse

__all__ = ["optimise"]


def optimise(program: Program) -> Program:
    """Drop unread steps, use twins, fold, fuse, drop dead channels."""
    return drop_dead_channels(fuse(fold(use_twins(program.without_unread_steps()))))
