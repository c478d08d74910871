"""The dense convolution vectorised over outputs, for small images whose patches are tiny or leave lanes empty."""

import itertools
from collections.abc import Iterator
from ctypes import Structure
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import native, schema
from .assemble import Assembly
from .configs import Config, Tile
from .layout import Field
from .pack import Array, pack_dense

if TYPE_CHECKING:
    from .convolution import Convolution

KERNEL = "lanewise"
FEW_VECTORS = 4  # with so few vectors per plane, other kernels have too few sums to hide latency


class Rectangle(NamedTuple):
    """A rectangle of lanes."""

    row: int
    column: int
    rows: int
    columns: int


def lanewise_candidates(convolution: "Convolution") -> list[tuple[float, Config]]:
    """Return the config with its estimated cycles; none if other kernels use all lanes."""
    field, outputs = convolution.target.field, len(convolution.weight)
    if convolution.groups > 1 or (field.mask is None and field.geometry.vectors > FEW_VECTORS):
        return []
    bundle, taps = bundle_size(convolution), convolution.weight[0].size
    height, width = field.geometry.height, field.geometry.width
    config = Config(height, width, convolution.channels, min(bundle, outputs), KERNEL)
    return [(lanewise_cost(convolution, taps), config)]


def lanewise_cost(convolution: "Convolution", taps: int) -> float:
    """Estimate the cycles of all pixels, on the scale of `dense_cost`: multiply-adds, loads, transposes."""
    field, outputs = convolution.target.field, len(convolution.weight)
    bundle = bundle_size(convolution)
    output_vectors = bundle // field.lanes
    total = 0.0
    for spans in vector_spans(field, convolution.kernels):
        pixels = [variant.vectors for _, variant in spans]
        total += sum(
            taps * (0.3 * output_vectors * each + 0.2 * (each + output_vectors + 1)) for each in pixels
        )
        total += 8 * bundle
    return total * -(-outputs // bundle) * field.groups


def bundle_size(convolution: "Convolution") -> int:
    return convolution.kernels.variants[KERNEL][0].outputs


def vector_spans(field: Field, kernels: native.Kernels) -> list[list[tuple[int, native.Variant]]]:
    """Return the spans of each vector of a plane: first lane and kernel.

    A geometry kept from a larger input has vectors without a pixel. The kernel needs a span for these too: one lane,
    whose sum the mask zeroes or no step reads.
    """
    known = {(each.rows, each.columns): each for each in kernels.variants[KERNEL]}
    inside = field.inside().reshape(field.geometry.vectors, *lane_grid(field))
    found = []
    for lanes in inside:
        wholes = [
            Rectangle(row, column, rows, columns)
            for row, rows in true_runs(lanes.any(axis=1))
            for column, columns in true_runs(lanes.any(axis=0))
        ]
        found.append(
            [
                (each.row * lanes.shape[1] + each.column, known[each.rows, each.columns])
                for whole in wholes
                for each in split_rectangle(whole, set(known))
            ]
            or [(0, known[1, 1])]
        )
    return found


def true_runs(which: npt.ArrayLike) -> list[tuple[int, int]]:
    """Return the start and length of each run of true values."""
    edges = np.flatnonzero(np.diff(np.asarray(which), prepend=False, append=False)).tolist()
    return [(low, high - low) for low, high in zip(edges[::2], edges[1::2], strict=True)]


def lane_grid(field: Field) -> tuple[int, int]:
    """Return the rows and columns of lanes; a single column counts as a row."""
    rows, columns = field.geometry.grid.images * field.geometry.grid.rows, field.geometry.grid.columns
    return (1, rows) if columns == 1 else (rows, columns)


def split_rectangle(whole: Rectangle, sizes: set[tuple[int, int]]) -> Iterator[Rectangle]:
    """Split a rectangle into as few nearly equal ones as possible, of sizes that have a kernel."""
    ways = sorted(
        (down * right, down, right)
        for down in range(1, whole.rows + 1)
        for right in range(1, whole.columns + 1)
        if {
            (high, wide)
            for _, high in even_parts(whole.rows, down)
            for _, wide in even_parts(whole.columns, right)
        }
        <= sizes
    )
    _, down, right = ways[0]
    for top, high in even_parts(whole.rows, down):
        for left, wide in even_parts(whole.columns, right):
            yield Rectangle(whole.row + top, whole.column + left, high, wide)


def even_parts(length: int, parts: int) -> list[tuple[int, int]]:
    """Return the start and length of nearly equal parts."""
    edges = [length * i // parts for i in range(parts + 1)]
    return [(low, high - low) for low, high in itertools.pairwise(edges)]


def lanewise_tiles(convolution: "Convolution") -> list[Tile]:
    """Return the vectors of a plane as tiles; their variant's number is the index of their first span."""
    field, tiles, spans = convolution.target.field, [], 0
    for number, each in enumerate(vector_spans(field, convolution.kernels)):
        y, x = divmod(number, field.geometry.width)
        tiles.append(Tile(y, x, native.Variant(1, 1, 0, bundle_size(convolution), spans)))
        spans += len(each)
    return tiles


def lanewise_structure(
    convolution: "Convolution", assembly: Assembly, taps: Array, bounds: list[int], common: dict[str, Any]
) -> Structure:
    """Return the structure; `common` holds the fields that all convolutions have."""
    field = convolution.target.field
    spans = [
        (lane, variant.number, lane == each[-1][0])
        for each in vector_spans(field, convolution.kernels)
        for lane, variant in each
    ]
    packed = pack_dense(convolution.weight, bundle_size(convolution), len(taps), bounds)
    made: Structure = schema.Lanewise(
        weights=assembly.keep(packed.weights),
        starts=assembly.keep(np.append(packed.starts, packed.weights.size)),
        taps=assembly.keep(np.append(taps, np.repeat(taps[-1:], schema.number("LANEWISE_PREFETCH")))),
        bounds=assembly.keep(np.array(bounds, np.int32)),
        spans=assembly.keep(np.array(spans, np.int32)),
        lane_row=lane_grid(field)[1],
        tap_count=len(taps),
        group_count=len(bounds) - 1,
        **common,
    )
    return made
