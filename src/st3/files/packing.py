"""One tensor as its non-zero values and coded positions, and back, bit for bit.

The code compares bits, not numbers. A zero is a number with no bit set; every other number is a value and keeps all
its bits, including the payload of a NaN. A negative zero counts as a zero whose sign is stored separately, coded like
the positions: `weight * mask` turns every negative weight that it removes into a negative zero, and storing a value for
each would make the file larger.
"""

from dataclasses import dataclass, replace
from math import lgamma, log, prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .positions import BLOCKS, Code, decode, encode

__all__ = ["DTYPES", "NARROW", "PARTS", "WIDE", "Packed", "entropy_bytes", "narrow", "pack", "unpack"]

NARROW = {"float16": torch.float16, "bfloat16": torch.bfloat16}
WIDE = (torch.float32, torch.float64)
SIGNED_ZERO = (torch.float64, torch.float32, torch.float16, torch.bfloat16,
               torch.float8_e4m3fn, torch.float8_e5m2)  # fmt: skip
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (
    *SIGNED_ZERO, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.complex64, torch.bool, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
)}  # fmt: skip
PARTS = (
    "",
    ":positions",
    ":signs",
)  # the values have the tensor's own name; a dense tensor has this part only
HEADER_BYTES = 200  # roughly what a sparse tensor takes in the file's header beyond what a dense one takes


@dataclass(frozen=True)
class Packed:
    """The stored parts of a sparse tensor, and the numbers needed to decode them."""

    shape: tuple[int, ...]
    values: Tensor  # the non-zero ones in row-major order; their type may be narrower than the tensor's
    positions: Tensor  # bytes
    block: int
    negative_zeros: int = 0
    signs: Tensor | None = None  # bytes: which zeros are negative
    signs_block: int = BLOCKS[0]

    @property
    def parts(self) -> dict[str, Tensor]:
        """The stored tensors by the suffix of their names."""
        parts = zip(PARTS, (self.values, self.positions, self.signs), strict=True)
        return {suffix: part for suffix, part in parts if part is not None}

    @property
    def position_bytes(self) -> int:
        return self.positions.numel() + (0 if self.signs is None else self.signs.numel())

    @property
    def position_bound(self) -> float:
        """The entropy of the positions in bytes: the least that any code needs on average over all such masks."""
        size, count = prod(self.shape), self.values.numel()
        return entropy_bytes(size, count) + entropy_bytes(size - count, self.negative_zeros)


def entropy_bytes(size: int, count: int) -> float:
    """Return log2 of the number of ways to choose `count` of `size` places, in bytes.

    >>> round(8 * entropy_bytes(10, 3), 3), round(8 * entropy_bytes(1_000_000, 100_000))
    (6.907, 468986)
    """
    return max(0.0, lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)) / log(2) / 8


def narrow(tensor: Tensor, values: str, name: str) -> Tensor:
    """Round a weight (two dimensions or more) to the 16-bit type that `values` names; "same" changes nothing."""
    if values == "same" or tensor.dim() < 2 or tensor.dtype not in WIDE:
        return tensor
    rounded = tensor.to(NARROW[values])
    if bool((rounded.isinf() & tensor.isfinite()).any()):
        most = float(tensor[tensor.isfinite()].abs().max())
        raise ValueError(
            f"{name} holds a value of magnitude {most:.6g}, but {values} ends at "
            f"{torch.finfo(rounded.dtype).max:.6g}: use values={'bfloat16' if values == 'float16' else 'same'!r}"
        )
    return rounded


def pack(tensor: Tensor) -> Packed | None:
    """Return the tensor in parts, or None if dense storage takes no more bytes."""
    if tensor.element_size() not in WORDS:
        return None
    words = _view_words(tensor)
    chosen, negative = words != 0, None
    if tensor.dtype in SIGNED_ZERO:
        found = words == np.left_shift(words.dtype.type(1), 8 * words.itemsize - 1)
        if found.any():
            negative = found
            chosen &= ~found
    count = int(np.count_nonzero(chosen))
    if count * words.itemsize + entropy_bytes(words.size, count) + HEADER_BYTES >= words.nbytes:
        return None
    code = encode(chosen)
    values = torch.from_numpy(words[chosen].view(np.uint8)).view(tensor.dtype)
    packed = Packed(tuple(tensor.shape), values, torch.from_numpy(code.content), code.block)
    if negative is not None:
        packed = _add_signs(packed, encode(negative[~chosen]), int(np.count_nonzero(negative)))
    stored = values.numel() * values.element_size() + packed.position_bytes
    return packed if stored + HEADER_BYTES < words.nbytes else None


def unpack(packed: Packed) -> Tensor:
    """Return the dense tensor, in the type of the values; ValueError if the parts contradict each other."""
    values = _view_words(packed.values)
    size = prod(packed.shape)
    positions = decode(packed.positions.numpy(), size, values.size, packed.block)
    words = np.zeros(size, values.dtype)
    words[positions] = values
    if packed.signs is not None:
        zeros = np.ones(size, np.bool_)
        zeros[positions] = False
        negative = decode(packed.signs.numpy(), size - values.size, packed.negative_zeros, packed.signs_block)
        words[np.flatnonzero(zeros)[negative]] = np.left_shift(words.dtype.type(1), 8 * words.itemsize - 1)
    return torch.from_numpy(words.view(np.uint8)).view(packed.values.dtype).reshape(packed.shape)


def _add_signs(packed: Packed, code: Code, count: int) -> Packed:
    return replace(packed, negative_zeros=count, signs=torch.from_numpy(code.content), signs_block=code.block)


def _view_words(tensor: Tensor) -> NDArray[np.unsignedinteger]:
    """Return the bits of the numbers in row-major order, as unsigned integers."""
    flat = tensor.reshape(-1).contiguous()
    words: NDArray[np.unsignedinteger] = flat.view(torch.uint8).numpy().view(WORDS[tensor.element_size()])
    return words
