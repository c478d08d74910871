"""Inputs that are no float32 numbers (ids of words, masks) as float32 bits: a program carries nothing else.

Only steps in torch read them, and these restore them first; no number is computed from the bits.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["carried", "carried_shape", "restored"]

WIDTH = 4  # bytes of a float32


def carried(tensor: Tensor) -> Tensor:
    """Return the tensor's bytes as a row of float32.

    >>> ids = torch.tensor([[7, -1], [2**40, 3]])
    >>> restored(carried(ids), ids.dtype, (2, 2)).tolist()
    [[7, -1], [1099511627776, 3]]
    """
    if tensor.dtype is torch.float32:
        return tensor
    row = tensor.contiguous().reshape(-1).view(torch.uint8)
    return F.pad(row, (0, -len(row) % WIDTH)).view(torch.float32)


def carried_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that such a tensor has in a program."""
    return shape if dtype is torch.float32 else (-(-math.prod(shape) * dtype.itemsize // WIDTH),)


def restored(bits: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return the tensor again."""
    size = math.prod(shape) * dtype.itemsize
    return bits.view(torch.uint8)[:size].view(dtype).view(shape)
