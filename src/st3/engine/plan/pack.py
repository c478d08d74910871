"""Pack weights in the order in which the kernels read them."""

import itertools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import schema
from ..program import Floats
from .layout import Field, Ints

Array: TypeAlias = npt.NDArray[np.generic]
DENSE_SHARE = 0.4  # a matrix for `rows` with a larger share of non-zero weights is stored dense


@dataclass(frozen=True)
class NonZeros:
    """The non-zero weights of a convolution, sorted by output, with the channels and byte offsets of their inputs."""

    outputs: int
    channels: int
    output: Ints
    channel: Ints
    offsets: Ints
    weight: Floats


@dataclass(frozen=True)
class PackedSparse:
    """The lists of a sparse convolution."""

    items: Array
    lowest_offset: int
    outputs: Array
    lengths: Array
    blocks: Array
    groups: Array


def tap_offsets(field: Field, channel: Ints, dy: Ints, dx: Ints) -> Ints:
    """Return the byte offsets of the pixels (channel, dy, dx) from pixel (0, 0, 0)."""
    floats = channel.astype(np.int64) * field.plane + dy * field.pitch + dx * field.lanes
    if floats.size and 4 * max(int(floats.max()), -int(floats.min())) >= 2**31:
        raise ValueError("one image of a layer takes 2 GiB or more; the kernels use 32-bit offsets")
    return (4 * floats).astype(np.int32)


def nonzeros(
    weight: Floats, field: Field, padding: tuple[int, int], dilation: tuple[int, int], groups: int
) -> NonZeros:
    """Return the non-zero weights, with the offsets of their inputs in a field."""
    outputs, inputs, high, wide = weight.shape
    flat = weight.reshape(-1)
    places = np.flatnonzero(is_nonzero(flat))  # several times as fast as np.nonzero of the weight
    row, kx = np.divmod(places.astype(np.int32) if weight.size < 2**31 else places, wide)
    row, ky = np.divmod(row, high)
    output, channel = (each.astype(np.int32, copy=False) for each in np.divmod(row, inputs))
    channel = channel + output // (outputs // groups) * inputs
    offset = tap_offsets(field, channel, ky * dilation[0] - padding[0], kx * dilation[1] - padding[1])
    return NonZeros(outputs, inputs * groups, output, channel, offset, flat[places])


def count_nonzeros(array: npt.NDArray[Any]) -> int:
    """Return the number of non-zero elements, several times as fast as numpy counts floats."""
    return int(np.count_nonzero(is_nonzero(array)))


def is_nonzero(array: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which elements are not zero.

    Floats are compared by their bits without the sign: they may be words of bytes, and a processor that is told to take
    very small floats for zero would drop some of these.
    """
    bits = np.ascontiguousarray(array).view(np.int32) & 0x7FFFFFFF if array.dtype == np.float32 else array
    found: npt.NDArray[np.bool_] = bits != 0
    return found


def pack_sparse(nonzeros: NonZeros, bundle: int, channels_per_block: int, bounds: list[int]) -> PackedSparse:
    """Interleave the lists of `bundle` outputs each, one block of input channels at a time.

    Outputs bounds[g] .. bounds[g + 1] are one group; its lists are adjacent. In a block, outputs are sorted by the
    length of their lists: bundles then need little padding, and the processor predicts where a list ends.
    """
    count, blocks = nonzeros.outputs, -(-nonzeros.channels // channels_per_block)
    block = nonzeros.channel // channels_per_block
    # Outputs are sorted already, and numpy sorts small numbers fast.
    order = np.argsort(block.astype(np.min_scalar_type(blocks)), kind="stable")
    cell = (block.astype(np.int64) * count + nonzeros.output)[order]
    lengths = np.bincount(cell, minlength=blocks * count)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    lengths, begins = lengths.reshape(blocks, count), begins.reshape(blocks, count)

    slot = np.zeros((blocks, count), np.int64)  # position of each list's first item
    heads, all_outputs, all_lengths, fillers = [], [], [], []
    items = bundles = 0
    for low, high in itertools.pairwise(bounds):
        for b in range(blocks):
            of_block = lengths[b, low:high]
            rows = np.argsort(-of_block, kind="stable")
            if 0 < b < blocks - 1:
                rows = rows[: np.count_nonzero(of_block)]
            number = -(-len(rows) // bundle)
            padded = np.full(number * bundle, -1)
            padded[: len(rows)] = rows + low
            longest = of_block[rows[::bundle]]  # sorted: the first of each bundle
            starts = items + bundle * np.concatenate([[0], np.cumsum(longest)])
            slot[b, padded[: len(rows)]] = (starts[:-1].repeat(bundle) + np.arange(len(padded)) % bundle)[
                : len(rows)
            ]
            heads.append((items, bundles, number, b == 0, b == blocks - 1, low))
            all_outputs.append(padded)
            all_lengths.append(longest)
            filler = np.zeros(number, np.int32)
            if len(order):
                filler = nonzeros.offsets[order[np.minimum(begins[b, low + rows[::bundle]], len(order) - 1)]]
            fillers.append(np.repeat(filler, longest * bundle))
            items, bundles = int(starts[-1]), bundles + number

    # Shorter lists of a bundle are padded with zero weights for an input that the bundle reads anyway.
    offsets = np.concatenate(fillers) if items else np.zeros(0, np.int32)
    weights = np.zeros(items, np.float32)
    target = (slot - bundle * begins).reshape(-1)[cell] + bundle * np.arange(len(cell))
    weights[target] = nonzeros.weight[order]
    offsets[target] = nonzeros.offsets[order]
    lowest_offset = int(offsets.min(initial=0))
    table = np.zeros((max(items // bundle, 1), 2, bundle), np.uint32)
    table[: items // bundle, 0] = (offsets.astype(np.int64) - lowest_offset).reshape(-1, bundle)
    table[: items // bundle, 1] = weights.view(np.uint32).reshape(-1, bundle)
    return PackedSparse(
        items=table,
        lowest_offset=lowest_offset,
        outputs=np.concatenate(all_outputs).astype(np.int32),
        lengths=np.concatenate(all_lengths).astype(np.int32),
        blocks=np.array(heads, np.dtype(schema.Block)),
        groups=np.arange(len(bounds), dtype=np.int32) * blocks,
    )


@dataclass(frozen=True)
class PackedDense:
    """All weights by group of outputs and block of taps, and the start of each block of each group."""

    weights: Floats
    starts: Array
    blocks: Array


def pack_dense(weight: Floats, bundle: int, taps_per_block: int, bounds: list[int]) -> PackedDense:
    """Return the weights as (group, block, bundle of outputs, tap, output); bundles are padded with zeros."""
    flat = weight.reshape(len(weight), -1)
    taps = flat.shape[1]
    edges = [*range(0, taps, taps_per_block), taps]
    bundles = [-(-(high - low) // bundle) for low, high in itertools.pairwise(bounds)]
    weights = np.zeros(sum(bundles) * bundle * taps, np.float32)
    starts, size = [], 0
    for (low, high), number in zip(itertools.pairwise(bounds), bundles, strict=True):
        whole, rest = divmod(high - low, bundle)
        for begin, end in itertools.pairwise(edges):
            part = weights[size:][: number * bundle * (end - begin)].reshape(number, end - begin, bundle)
            of_block = flat[low:high, begin:end]
            bundled = of_block[: whole * bundle].reshape(whole, bundle, end - begin)
            part[:whole] = bundled.transpose(0, 2, 1)
            if rest:
                part[-1, :, :rest] = of_block[whole * bundle :].T
            starts.append(size)
            size += part.size
    return PackedDense(weights, np.array(starts, np.int64), np.array(edges, np.int32))


@dataclass(frozen=True)
class Slices:
    """A matrix in slices of outputs with similar numbers of weights, one output per lane."""

    weights: Array
    index: Array | None  # None: dense
    order: Array
    starts: Array


def pack_slices(weight: Floats, lanes: int) -> Slices:
    """Sort the outputs by their number of weights and pack them in slices of `lanes` outputs."""
    lengths = np.count_nonzero(weight, axis=1)
    if lengths.sum() > DENSE_SHARE * weight.size:
        return pack_dense_slices(weight, lanes)
    rows = np.argsort(-lengths, kind="stable")
    number = -(-len(rows) // lanes)
    order = np.full(number * lanes, -1, np.int32)
    order[: len(rows)] = rows
    starts = np.concatenate([[0], np.cumsum(lengths[rows[::lanes]])]).astype(np.int64)
    weights = np.zeros(max(int(starts[-1]), 1) * lanes, np.float32)
    index = np.zeros(len(weights), np.int32)
    output, position = np.nonzero(weight)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    within = np.arange(len(output)) - begins[output]
    rank = np.empty(len(rows), np.int64)
    rank[rows] = np.arange(len(rows))
    rank = rank[output]
    target = (starts[rank // lanes] + within) * lanes + rank % lanes
    weights[target], index[target] = weight[output, position], position
    return Slices(weights, index, order, starts)


def pack_dense_slices(weight: Floats, lanes: int) -> Slices:
    """Pack all weights in slices of `lanes` outputs, without positions, which saves half the memory."""
    outputs, inputs = weight.shape
    number = -(-outputs // lanes)
    order = np.full(number * lanes, -1, np.int32)
    order[:outputs] = np.arange(outputs)
    padded = np.zeros((number * lanes, inputs), np.float32)
    padded[:outputs] = weight
    weights = np.ascontiguousarray(padded.reshape(number, lanes, inputs).transpose(0, 2, 1))
    return Slices(weights, None, order, inputs * np.arange(number + 1, dtype=np.int64))
