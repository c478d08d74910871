"""Optimise a program; results change by rounding at most.

forms           one form of images and rows, whatever the model is written in
fusing          two steps as one: batch norms and padding, activations and residual additions, torch steps
dead_channels   channels that are constant or unread are removed
quantise        layers in int8, by ranges that were measured: the rounding is that to bytes
"""

from ..program import Program
from .dead_channels import drop_dead_channels
from .forms import use_twins
from .fusing import fold, fuse
from .quantise import Ranges, count_words, quantise

__all__ = ["Ranges", "fuse_all", "optimise", "optimise_in_int8", "quantise"]


def optimise(program: Program) -> Program:
    """Drop unread steps, use twins, fold, fuse, drop dead channels."""
    return drop_dead_channels(fuse_all(program))


def fuse_all(program: Program) -> Program:
    """Drop unread steps, use twins, fold and fuse; ranges are measured in the result."""
    return fuse(fold(use_twins(program.without_unread_steps())))


def optimise_in_int8(program: Program, ranges: Ranges) -> Program:
    """Do all of that, and put layers into int8.

    Dead channels are removed only if fewer words are left then: a channel less shifts the blocks of those behind it.
    """
    fused = fuse_all(program)
    return quantise(min(drop_dead_channels(fused), fused, key=count_words), ranges)
