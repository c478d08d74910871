"""The idx format of MNIST and its relatives: a magic number, the dimensions, then one byte after the other."""

import math
import struct

import numpy as np
import torch
from torch import Tensor

from .errors import DataError

__all__ = ["parse_idx"]

BYTE = 0x08  # the format's code for unsigned bytes


def parse_idx(content: bytes, shape: tuple[int, ...], file: str) -> Tensor:
    """Return the bytes of a file that must have this shape; `file` names it in errors."""
    head = struct.pack(f">4B{len(shape)}I", 0, 0, BYTE, len(shape), *shape)
    if content[:4] != head[:4]:
        raise DataError(
            f"{file} starts with {content[:4].hex() or 'nothing'} instead of {head[:4].hex()}, so it is no idx "
            f"file of bytes in {len(shape)} dimensions; delete it and get it again"
        )
    sizes = struct.unpack(f">{len(shape)}I", content[4 : len(head)].ljust(len(head) - 4, b"\0"))
    if sizes != shape:
        raise DataError(
            f"{file} holds {_product(sizes)} bytes instead of {_product(shape)}; delete it and get it again"
        )
    found, expected = len(content) - len(head), math.prod(shape)
    if found != expected:
        raise DataError(f"{file} has {found:,} bytes of {expected:,}; delete it and get it again")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=len(head)).reshape(shape).copy())


def _product(sizes: tuple[int, ...]) -> str:
    return "×".join(str(size) for size in sizes)
