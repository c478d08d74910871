"""Convert asymmetric padding of a convolution to symmetric padding.

With padding p = max(before, after) on both sides, a kernel shifted by p - before reads the same pixels. The taps added
by the shift are zeros, which cost a sparse kernel nothing.
"""

import numpy as np

from ..program import Floats

__all__ = ["Sides", "make_symmetric", "same_padding"]

Sides = tuple[tuple[int, int], tuple[int, int]]  # (top, bottom), (left, right)


def same_padding(kernel: tuple[int, int], dilation: tuple[int, int]) -> Sides:
    """Return the padding of `padding="same"`; if the total is odd, the larger half comes after.

    >>> same_padding((3, 2), (1, 1))
    ((1, 1), (0, 1))
    """
    totals = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    (tall, wide) = ((total // 2, total - total // 2) for total in totals)
    return tall, wide


def make_symmetric(
    weight: Floats, sides: Sides, dilation: tuple[int, int]
) -> tuple[Floats, tuple[int, int], tuple[int, int]]:
    """Return weight, padding and dilation of an equivalent convolution with equal padding on opposite sides.

    >>> weight, padding, dilation = make_symmetric(np.ones((1, 1, 1, 2), np.float32), ((0, 0), (0, 1)), (1, 1))
    >>> weight.tolist(), padding
    ([[[[0.0, 1.0, 1.0]]]], (0, 1))
    """
    dilations = list(dilation)
    for axis, (before, after) in enumerate(sides, start=2):
        shift = abs(after - before)
        if shift % dilations[axis - 2]:
            weight = _undilate(weight, axis, dilations[axis - 2])
            dilations[axis - 2] = 1
        more = [(0, 0)] * 4
        taps = shift // dilations[axis - 2]
        more[axis] = (taps, 0) if after > before else (0, taps)
        weight = np.pad(weight, more)
    padding = (max(sides[0]), max(sides[1]))
    return np.ascontiguousarray(weight), padding, (dilations[0], dilations[1])


def _undilate(weight: Floats, axis: int, dilation: int) -> Floats:
    """Return the kernel with zeros in the gaps of the dilation."""
    shape = list(weight.shape)
    shape[axis] = dilation * (shape[axis] - 1) + 1
    spread = np.zeros(shape, weight.dtype)
    spread[(slice(None),) * axis + (slice(None, None, dilation),)] = weight
    return spread
