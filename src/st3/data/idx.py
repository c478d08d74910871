"""The idx format of MNIST and similar data sets: a magic number, the dimensions, then the bytes."""

import math
import struct

import numpy as np
import torch
from torch import Tensor

from .errors import DataError

__all__ = ["parse_idx"]

UNSIGNED_BYTE = 0x08  # the format's code for it


def parse_idx(content: bytes, shape: tuple[int, ...], file: str) -> Tensor:
    """Return the bytes of an idx file as a tensor of this shape; `file` names it in errors."""
    head = struct.pack(f">4B{len(shape)}I", 0, 0, UNSIGNED_BYTE, len(shape), *shape)
    if content[:4] != head[:4]:
        raise DataError(
            f"{file} is not an idx file of bytes in {len(shape)} dimensions: it starts with "
            f"{content[:4].hex() or 'nothing'} instead of {head[:4].hex()}; delete it and download it again"
        )
    sizes = struct.unpack(f">{len(shape)}I", content[4 : len(head)].ljust(len(head) - 4, b"\0"))
    if sizes != shape:
        raise DataError(
            f"{file} holds {_join(sizes)} bytes instead of {_join(shape)}; delete it and download it again"
        )
    found, expected = len(content) - len(head), math.prod(shape)
    if found != expected:
        raise DataError(
            f"{file} holds {found:,} bytes instead of {expected:,}; delete it and download it again"
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=len(head)).reshape(shape).copy())


def _join(sizes: tuple[int, ...]) -> str:
    return "×".join(str(size) for size in sizes)
