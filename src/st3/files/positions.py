"""Positions among many places as few bits: Rice codes of the gaps between them.

The rarer kind of place is coded (the chosen ones or, if these are more than half, the others), as the number of other
places before each: its gap. With a parameter r, the low r bits of a gap are written as they are, the rest in unary,
so many zeros and a one. For gaps of a random mask this costs 0.4 to 3.3 % more than the entropy; every block of gaps
has a parameter of its own, so masks that are uneven from filter to filter cost less than random ones.

One code is three rows of bits, the last one filled up with zeros to a whole byte:

    parameters   four bits per block of gaps, filled up to a whole byte
    low bits     r per gap, most significant first: of all gaps with r = 1, then of those with r = 2, ...
    unary        in the order of the gaps

All gaps are thus decoded at a time, by a few passes of numpy. Nothing is trusted: whatever the bytes, `decode` returns
positions below `size` in ascending order or raises ValueError, in memory bounded by `size` and the length of the code.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCKS", "Code", "decode", "encode"]

BLOCKS = (32, 128, 512)  # gaps per block: the best is taken; small ones pay off for uneven masks
MOST = 15  # the largest parameter: fits four bits, and suits one position in 50,000

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Code:
    """Coded positions; how many there are, and among how many places, is known elsewhere."""

    content: Bytes
    block: int  # gaps per parameter


def encode(chosen: Flags) -> Code:
    """Return the code of the places that are True."""
    rare = ~chosen if 2 * np.count_nonzero(chosen) > chosen.size else chosen
    gaps = np.diff(np.flatnonzero(rare), prepend=-1) - 1
    if not gaps.size:
        return Code(np.zeros(0, np.uint8), BLOCKS[0])
    costs = {block: _costs(gaps, block) for block in BLOCKS}
    block = min(BLOCKS, key=lambda size: int(costs[size].min(axis=0).sum()) + 4 * costs[size].shape[1])
    parameters = costs[block].argmin(axis=0).astype(np.uint8)
    each = _per_gap(parameters, block, gaps.size)
    bits = np.concatenate([*_low_bits(gaps, each), _unary(np.right_shift(gaps, each, dtype=np.int64))])
    return Code(np.concatenate([_halves_packed(parameters), np.packbits(bits)]), block)


def decode(code: Bytes, size: int, count: int, block: int) -> Numbers:
    """Return the `count` positions among `size` places; ValueError if the code is not one of such positions."""
    if not 0 <= count <= size:
        raise ValueError(f"{count:,} positions among {size:,} places")
    if block not in BLOCKS:
        raise ValueError(f"blocks of {block} gaps")
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
    if count > 8 * max(0, code.size - head):  # each gap takes a bit at least
        raise ValueError("its code of positions is too short")
    if not count:
        if code.size:
            raise ValueError("its code of positions is too long")
        return np.zeros(0, np.int64)
    parameters, spare = np.split(_halves(code[:head]), [blocks])
    each = _per_gap(parameters, block, count)
    bits = np.unpackbits(code[head:])
    low = int(each.sum(dtype=np.int64))
    stops = np.flatnonzero(bits[low:])
    if stops.size != count or spare.any() or low + int(stops[-1]) + 8 < bits.size:
        raise ValueError("its code of positions is not a whole one")
    gaps = np.left_shift(np.diff(stops, prepend=-1) - 1, each, dtype=np.int64)
    _add_low_bits(gaps, each, bits[:low])
    positions = np.cumsum(gaps + 1) - 1
    if positions[-1] >= size:
        raise ValueError(f"its code of positions leads beyond {size:,} places")
    return positions


def _costs(gaps: Numbers, block: int) -> Numbers:
    """Return the bits that each block of gaps takes, for every parameter (rows)."""
    starts = np.arange(0, gaps.size, block)
    lengths = np.diff(starts, append=gaps.size)
    return np.stack([np.add.reduceat(gaps >> r, starts) + (r + 1) * lengths for r in range(MOST + 1)])


def _per_gap(parameters: Bytes, block: int, count: int) -> Bytes:
    return np.repeat(parameters, block)[:count]


def _unary(numbers: Numbers) -> Bytes:
    stops = np.cumsum(numbers + 1) - 1
    bits = np.zeros(int(stops[-1]) + 1, np.uint8)
    bits[stops] = 1
    return bits


def _low_bits(gaps: Numbers, each: Bytes) -> list[Bytes]:
    """Return the low bits of the gaps, first those with one, then those with two, ..."""
    found = []
    for r in range(1, int(each.max()) + 1):
        low = gaps[each == r].astype(">u2").view(np.uint8)  # MOST is below 16; bits above r are left out
        found.append(np.unpackbits(low).reshape(-1, 16)[:, 16 - r :].ravel())
    return found


def _add_low_bits(gaps: Numbers, each: Bytes, bits: Bytes) -> None:
    begin = 0
    for r in range(1, MOST + 1):
        is_here = each == r
        count = int(np.count_nonzero(is_here))
        if not count:
            continue
        rows = np.zeros((count, 16), np.uint8)
        rows[:, 16 - r :] = bits[begin : begin + count * r].reshape(count, r)
        gaps[is_here] += np.packbits(rows).view(">u2")
        begin += count * r


def _halves_packed(numbers: Bytes) -> Bytes:
    """Return numbers of four bits, two to a byte."""
    even = np.append(numbers, np.uint8(0)) if numbers.size % 2 else numbers
    return np.bitwise_or(np.left_shift(even[::2], 4), even[1::2], dtype=np.uint8)


def _halves(packed: Bytes) -> Bytes:
    return np.stack([packed >> 4, packed & 15], axis=1).ravel()
