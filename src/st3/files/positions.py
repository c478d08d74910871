"""A compact code for the positions of the non-zero values of a tensor: Rice codes of the gaps between them.

A position is the index of a place in the flattened tensor. The code lists the chosen places or, if they are more than
half, the others; for each it stores the gap, the number of places between it and the one before. With a parameter r, a
gap is written as its low r bits in binary and the rest in unary: that many zeros, then a one. For the gaps of a random
mask this costs 0.4 to 3.3 % more than the entropy. Each block of gaps has its own parameter, so a mask that is denser
in some filters than in others costs less than a random one.

A code has three sections of bits:

    parameters   four bits per block of gaps, padded with zeros to a whole byte
    low bits     r bits per gap, most significant first: all gaps with r = 1, then all gaps with r = 2, ...
    unary        in the order of the gaps, padded with zeros to a whole byte

Bits fill a byte from the highest to the lowest. The unary section follows the low bits at once; of two parameters in
a byte the first takes the higher half. `signs` are coded alike, with the zeros as places: which of them are negative.

This lets numpy decode all gaps at once, in a few passes. `decode` trusts nothing: for any bytes it returns positions
below `size` in ascending order or raises ValueError, and its memory is bounded by `size` and the length of the code.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCKS", "Code", "decode", "encode"]

BLOCKS = (32, 128, 512)  # gaps per block: `encode` takes the best; small ones pay off for uneven masks
MOST_LOW_BITS = 15  # the largest parameter: fits in four bits and suits one position in 50,000

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Code:
    """Coded positions. The number of positions and of places is stored elsewhere."""

    content: Bytes
    block: int  # gaps per parameter


def encode(chosen: Flags) -> Code:
    """Return the code of the positions at which `chosen` is True."""
    rare = ~chosen if 2 * np.count_nonzero(chosen) > chosen.size else chosen
    gaps = np.diff(np.flatnonzero(rare), prepend=-1) - 1
    if not gaps.size:
        return Code(np.zeros(0, np.uint8), BLOCKS[0])
    costs = {block: _costs(gaps, block) for block in BLOCKS}
    block = min(BLOCKS, key=lambda size: int(costs[size].min(axis=0).sum()) + 4 * costs[size].shape[1])
    parameters = costs[block].argmin(axis=0).astype(np.uint8)
    each = _repeat_per_gap(parameters, block, gaps.size)
    bits = np.concatenate(
        [*_take_low_bits(gaps, each), _write_unary(np.right_shift(gaps, each, dtype=np.int64))]
    )
    return Code(np.concatenate([_pack_nibbles(parameters), np.packbits(bits)]), block)


def decode(code: Bytes, size: int, count: int, block: int) -> Numbers:
    """Return the `count` positions among `size` places; ValueError if the code does not fit these numbers."""
    if not 0 <= count <= size:
        raise ValueError(f"it cannot have {count:,} positions among {size:,} places")
    if block not in BLOCKS:
        raise ValueError(f"it cannot have blocks of {block} gaps")
    is_inverted = 2 * count > size
    rare = _decode_rare(code, size, size - count if is_inverted else count, block)
    if not is_inverted:
        return rare
    chosen = np.ones(size, np.bool_)
    chosen[rare] = False
    return np.flatnonzero(chosen)


def _decode_rare(code: Bytes, size: int, count: int, block: int) -> Numbers:
    blocks = -(-count // block)
    head = -(-blocks // 2)  # bytes of parameters
    if count > 8 * max(0, code.size - head):  # each gap takes at least one bit
        raise ValueError("its position code is too short")
    if not count:
        if code.size:
            raise ValueError("its position code is too long")
        return np.zeros(0, np.int64)
    parameters, padding = np.split(_unpack_nibbles(code[:head]), [blocks])
    each = _repeat_per_gap(parameters, block, count)
    bits = np.unpackbits(code[head:])
    low = int(each.sum(dtype=np.int64))
    stops = np.flatnonzero(bits[low:])
    if stops.size != count or padding.any() or low + int(stops[-1]) + 8 < bits.size:
        raise ValueError("its position code is incomplete")
    gaps = np.left_shift(np.diff(stops, prepend=-1) - 1, each, dtype=np.int64)
    _add_low_bits(gaps, each, bits[:low])
    positions = np.cumsum(gaps + 1) - 1
    if positions[-1] >= size:
        raise ValueError(f"its position code leads beyond {size:,} places")
    return positions


def _costs(gaps: Numbers, block: int) -> Numbers:
    """Return how many bits each block of gaps (column) takes with each parameter (row)."""
    starts = np.arange(0, gaps.size, block)
    lengths = np.diff(starts, append=gaps.size)
    return np.stack(
        [np.add.reduceat(gaps >> r, starts) + (r + 1) * lengths for r in range(MOST_LOW_BITS + 1)]
    )


def _repeat_per_gap(parameters: Bytes, block: int, count: int) -> Bytes:
    return np.repeat(parameters, block)[:count]


def _write_unary(numbers: Numbers) -> Bytes:
    stops = np.cumsum(numbers + 1) - 1
    bits = np.zeros(int(stops[-1]) + 1, np.uint8)
    bits[stops] = 1
    return bits


def _take_low_bits(gaps: Numbers, each: Bytes) -> list[Bytes]:
    """Return the low bits of the gaps: first of those with one low bit, then of those with two, ..."""
    found = []
    for r in range(1, int(each.max()) + 1):
        low = (
            gaps[each == r].astype(">u2").view(np.uint8)
        )  # 16 bits hold MOST_LOW_BITS; those above r are dropped
        found.append(np.unpackbits(low).reshape(-1, 16)[:, 16 - r :].ravel())
    return found


def _add_low_bits(gaps: Numbers, each: Bytes, bits: Bytes) -> None:
    begin = 0
    for r in range(1, MOST_LOW_BITS + 1):
        is_here = each == r
        count = int(np.count_nonzero(is_here))
        if not count:
            continue
        rows = np.zeros((count, 16), np.uint8)
        rows[:, 16 - r :] = bits[begin : begin + count * r].reshape(count, r)
        gaps[is_here] += np.packbits(rows).view(">u2")
        begin += count * r


def _pack_nibbles(numbers: Bytes) -> Bytes:
    """Return four-bit numbers as bytes, two in each."""
    even = np.append(numbers, np.uint8(0)) if numbers.size % 2 else numbers
    return np.bitwise_or(np.left_shift(even[::2], 4), even[1::2], dtype=np.uint8)


def _unpack_nibbles(packed: Bytes) -> Bytes:
    return np.stack([packed >> 4, packed & 15], axis=1).ravel()
