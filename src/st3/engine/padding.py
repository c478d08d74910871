"""Every padding of a convolution as one that is the same on both sides.

Zeros added on one side only are zeros in the kernel: with p = max(before, after) on both sides, a kernel that is
shifted by p - before reads the same pixels. The added taps are zeros, and zeros cost a sparse kernel nothing.
"""

import numpy as np

from .program import Floats

__all__ = ["Sides", "same_padding", "symmetric"]

Sides = tuple[tuple[int, int], tuple[int, int]]  # (top, bottom), (left, right)


def same_padding(kernel: tuple[int, int], dilation: tuple[int, int]) -> Sides:
    """Return what `padding="same"` adds: where the total is odd, the greater half comes after.

    >>> same_padding((3, 2), (1, 1))
    ((1, 1), (0, 1))
    """
    totals = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    (tall, wide) = ((total // 2, total - total // 2) for total in totals)
    return tall, wide


def symmetric(
    weight: Floats, sides: Sides, dilation: tuple[int, int]
) -> tuple[Floats, tuple[int, int], tuple[int, int]]:
    """Return weight, padding and dilation of the same convolution with equal padding on opposite sides.

    >>> weight, padding, dilation = symmetric(np.ones((1, 1, 1, 2), np.float32), ((0, 0), (0, 1)), (1, 1))
    >>> weight.tolist(), padding
    ([[[[0.0, 1.0, 1.0]]]], (0, 1))
    """
    dilations = list(dilation)
    for axis, (before, after) in enumerate(sides, start=2):
        shift = abs(after - before)
        if shift % dilations[axis - 2]:
            weight = _undilated(weight, axis, dilations[axis - 2])
            dilations[axis - 2] = 1
        more = [(0, 0)] * 4
        taps = shift // dilations[axis - 2]
        more[axis] = (taps, 0) if after > before else (0, taps)
        weight = np.pad(weight, more)
    padding = (max(sides[0]), max(sides[1]))
    return np.ascontiguousarray(weight), padding, (dilations[0], dilations[1])


def _undilated(weight: Floats, axis: int, dilation: int) -> Floats:
    """Return the kernel with its gaps written as zeros."""
    shape = list(weight.shape)
    shape[axis] = dilation * (shape[axis] - 1) + 1
    spread = np.zeros(shape, weight.dtype)
    spread[(slice(None),) * axis + (slice(None, None, dilation),)] = weight
    return spread
