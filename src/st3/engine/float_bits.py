"""Store tensors of other types (token ids, masks) as the bits of float32, the only type of a program's values.

Only steps in torch read them, and convert them back first; nothing computes with the bits.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["float_bits_shape", "from_float_bits", "to_float_bits"]

WIDTH = 4  # bytes of a float32


def to_float_bits(tensor: Tensor) -> Tensor:
    """Return the tensor's bytes as a row of float32; a float32 tensor unchanged.

    >>> ids = torch.tensor([[7, -1], [2**40, 3]])
    >>> from_float_bits(to_float_bits(ids), ids.dtype, (2, 2)).tolist()
    [[7, -1], [1099511627776, 3]]
    """
    if tensor.dtype is torch.float32:
        return tensor
    row = tensor.contiguous().reshape(-1).view(torch.uint8)
    return F.pad(row, (0, -len(row) % WIDTH)).view(torch.float32)


def float_bits_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of `to_float_bits` of a tensor."""
    return shape if dtype is torch.float32 else (-(-math.prod(shape) * dtype.itemsize // WIDTH),)


def from_float_bits(bits: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return the tensor that `to_float_bits` was given."""
    size = math.prod(shape) * dtype.itemsize
    return bits.view(torch.uint8)[:size].view(dtype).view(shape)
