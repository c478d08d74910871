"""Weights as the kernels read them."""

import itertools
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .layout import Field, Ints
from .program import Floats

Array: TypeAlias = npt.NDArray[np.generic]
DENSE_MATRIX = 0.4  # share of weights from which a matrix times few vectors is stored dense
BLOCK = np.dtype(
    [("items", "i8"), ("bundle", "i8"), ("bundles", "i4"), ("first", "i4"), ("last", "i4"), ("base", "i4")]
)


@dataclass(frozen=True)
class NonZeros:
    """The non-zero weights of a convolution, by output: value, input channel, and where that input lies."""

    outputs: int
    channels: int
    output: Ints
    channel: Ints
    bytes: Ints
    weight: Floats


@dataclass(frozen=True)
class Packed:
    """The lists of one sparse convolution."""

    items: Array
    lowest: int
    outputs: Array
    lengths: Array
    blocks: Array
    groups: Array


def tap_bytes(field: Field, channel: Ints, dy: Ints, dx: Ints) -> Ints:
    """Return how many bytes a channel's neighbour lies from the first channel's own pixel."""
    floats = channel.astype(np.int64) * field.plane + dy * field.pitch + dx * field.lanes
    if floats.size and 4 * max(int(floats.max()), -int(floats.min())) >= 2**31:
        raise ValueError("the planes of one picture take 2 GiB or more; the kernels count them in 32 bits")
    return (4 * floats).astype(np.int32)


def nonzeros(
    weight: Floats, field: Field, padding: tuple[int, int], dilation: tuple[int, int], groups: int
) -> NonZeros:
    """Return the weights that are not zero, with their inputs' places in a field."""
    outputs, inputs = weight.shape[0], weight.shape[1]
    output, channel, ky, kx = (each.astype(np.int32) for each in np.nonzero(weight))
    value = weight[output, channel, ky, kx]
    channel = (channel + output // (outputs // groups) * inputs).astype(np.int32)
    place = tap_bytes(field, channel, ky * dilation[0] - padding[0], kx * dilation[1] - padding[1])
    return NonZeros(outputs, inputs * groups, output, channel, place, value)


def pack(nonzeros: NonZeros, bundle: int, channels_per_block: int, bounds: list[int]) -> Packed:
    """Interleave the lists of `bundle` outputs each, block by block of input channels.

    Outputs bounds[g] .. bounds[g + 1] are one group: its lists follow one another. In a block, outputs with lists of
    like length stand together: little is padded, and the processor guesses when a list ends.
    """
    count, blocks = nonzeros.outputs, -(-nonzeros.channels // channels_per_block)
    block = nonzeros.channel // channels_per_block
    cell = block.astype(np.int64) * count + nonzeros.output
    order = np.argsort(cell, kind="stable") if blocks > 1 else np.arange(len(cell))
    lengths = np.bincount(cell, minlength=blocks * count)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    within = np.arange(len(cell)) - begins[cell[order]]
    lengths, begins = lengths.reshape(blocks, count), begins.reshape(blocks, count)

    slot = np.zeros((blocks, count), np.int64)  # where a list's first item goes
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
                filler = nonzeros.bytes[order[np.minimum(begins[b, low + rows[::bundle]], len(order) - 1)]]
            fillers.append(np.repeat(filler, longest * bundle))
            items, bundles = int(starts[-1]), bundles + number

    # A list shorter than its bundle's longest is filled up with zeros times an input that the bundle reads anyway.
    places = np.concatenate(fillers) if items else np.zeros(0, np.int32)
    weights = np.zeros(items, np.float32)
    target = slot.reshape(-1)[cell[order]] + within * bundle
    weights[target] = nonzeros.weight[order]
    places[target] = nonzeros.bytes[order]
    lowest = int(places.min(initial=0))
    table = np.zeros((max(items // bundle, 1), 2, bundle), np.uint32)
    table[: items // bundle, 0] = (places.astype(np.int64) - lowest).reshape(-1, bundle)
    table[: items // bundle, 1] = weights.view(np.uint32).reshape(-1, bundle)
    return Packed(
        items=table,
        lowest=lowest,
        outputs=(np.concatenate(all_outputs).astype(np.int32)),
        lengths=(np.concatenate(all_lengths).astype(np.int32)),
        blocks=(np.array(heads, BLOCK)),
        groups=(np.arange(len(bounds), dtype=np.int32) * blocks),
    )


@dataclass(frozen=True)
class PackedDense:
    """All weights, group by group of outputs and block by block of taps, and where each block of a group begins."""

    weights: Floats
    starts: Array
    blocks: Array


def pack_dense(weight: Floats, bundle: int, taps_per_block: int, bounds: list[int]) -> PackedDense:
    """Return weights as (group, block, bundle of outputs, tap, output); bundles are filled up with zeros."""
    flat = weight.reshape(len(weight), -1)
    edges = [*range(0, flat.shape[1], taps_per_block), flat.shape[1]]
    parts, starts, size = [], [], 0
    for low, high in itertools.pairwise(bounds):
        padded = np.zeros((-(-(high - low) // bundle) * bundle, flat.shape[1]), np.float32)
        padded[: high - low] = flat[low:high]
        for begin, end in itertools.pairwise(edges):
            part = padded[:, begin:end].reshape(-1, bundle, end - begin).transpose(0, 2, 1)
            parts.append(part.reshape(-1))
            starts.append(size)
            size += part.size
    return PackedDense(np.concatenate(parts), np.array(starts, np.int64), np.array(edges, np.int32))


@dataclass(frozen=True)
class Slices:
    """A matrix in slices of outputs of like length, lanes side by side."""

    weights: Array
    index: Array | None  # None: dense
    order: Array
    starts: Array


def slices(weight: Floats, lanes: int) -> Slices:
    """Sort the outputs by their number of weights and lay them out in slices of `lanes` outputs."""
    lengths = np.count_nonzero(weight, axis=1)
    if lengths.sum() > DENSE_MATRIX * weight.size:
        return dense_slices(weight, lanes)
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


def dense_slices(weight: Floats, lanes: int) -> Slices:
    """Lay all weights out in slices of `lanes` outputs: without positions they take half the memory."""
    outputs, inputs = weight.shape
    number = -(-outputs // lanes)
    order = np.full(number * lanes, -1, np.int32)
    order[:outputs] = np.arange(outputs)
    padded = np.zeros((number * lanes, inputs), np.float32)
    padded[:outputs] = weight
    weights = np.ascontiguousarray(padded.reshape(number, lanes, inputs).transpose(0, 2, 1))
    return Slices(weights, None, order, inputs * np.arange(number + 1, dtype=np.int64))
