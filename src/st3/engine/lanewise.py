"""The dense convolution whose lanes are outputs: for small pictures, whose patches leave lanes empty or are tiny."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import native, plan
from .config import Config
from .layout import Field
from .packing import Array, pack_dense
from .planned import Binding
from .tiles import Cut

if TYPE_CHECKING:
    from .convolution import Convolution

KERNEL = "lanewise"
FEW = 4  # vectors of a plane that leave other kernels too few sums at a time
TAPS_AHEAD = 8  # the kernel looks so many taps beyond the last


class Rectangle(NamedTuple):
    """Rows and columns of lanes."""

    row: int
    column: int
    rows: int
    columns: int


def lanewise_guesses(convolution: "Convolution") -> list[tuple[float, Config]]:
    """Return the config with its guessed cycles, in the scale of `dense_cost`; none where others lose nothing."""
    field, outputs = convolution.target.field, len(convolution.weight)
    if convolution.groups > 1 or (field.mask is None and field.geometry.vectors > FEW):
        return []
    bundle, taps = outputs_at_a_time(convolution), convolution.weight[0].size
    height, width = field.geometry.height, field.geometry.width
    config = Config(height, width, convolution.nonzeros.channels, min(bundle, outputs), KERNEL)
    return [(lanewise_cost(convolution, taps), config)]


def lanewise_cost(convolution: "Convolution", taps: int) -> float:
    """Guess the cycles of all pixels: multiply-adds and loads, and what it takes to transpose the sums."""
    field, outputs = convolution.target.field, len(convolution.weight)
    bundle = outputs_at_a_time(convolution)
    side_by_side = bundle // field.lanes
    total = 0.0
    for spans in vectors(field, convolution.kernels):
        pixels = [variant.vectors for _, variant in spans]
        total += sum(taps * (0.3 * side_by_side * each + 0.2 * (each + side_by_side + 1)) for each in pixels)
        total += 8 * bundle
    return total * -(-outputs // bundle) * field.groups


def outputs_at_a_time(convolution: "Convolution") -> int:
    return convolution.kernels.variants[KERNEL][0].outputs


def vectors(field: Field, kernels: native.Kernels) -> list[list[tuple[int, native.Variant]]]:
    """Return for each vector of a plane its spans: the first lane and the kernel.

    A geometry that was kept from a larger input has vectors without any pixel of the picture. The kernel looks for a
    span nevertheless: one lane, whose sum the mask wipes out, or nobody reads.
    """
    known = {(each.rows, each.columns): each for each in kernels.variants[KERNEL]}
    inside = field.inside().reshape(field.geometry.vectors, *lane_grid(field))
    found = []
    for lanes in inside:
        wholes = [
            Rectangle(row, column, rows, columns)
            for row, rows in runs(lanes.any(axis=1))
            for column, columns in runs(lanes.any(axis=0))
        ]
        found.append(
            [
                (each.row * lanes.shape[1] + each.column, known[each.rows, each.columns])
                for whole in wholes
                for each in cut(whole, set(known))
            ]
            or [(0, known[1, 1])]
        )
    return found


def runs(which: npt.ArrayLike) -> list[tuple[int, int]]:
    """Return where each run of true values begins, and its length."""
    edges = np.flatnonzero(np.diff(np.asarray(which), prepend=False, append=False)).tolist()
    return [(low, high - low) for low, high in zip(edges[::2], edges[1::2], strict=True)]


def lane_grid(field: Field) -> tuple[int, int]:
    """Return the lanes as rows and columns; a single column is a row."""
    rows, columns = field.geometry.grid.images * field.geometry.grid.rows, field.geometry.grid.columns
    return (1, rows) if columns == 1 else (rows, columns)


def cut(whole: Rectangle, sizes: set[tuple[int, int]]) -> Iterator[Rectangle]:
    """Cut a rectangle into nearly equal ones of a size that has a kernel, as few as possible."""
    ways = sorted(
        (down * right, down, right)
        for down in range(1, whole.rows + 1)
        for right in range(1, whole.columns + 1)
        if {(high, wide) for _, high in shares(whole.rows, down) for _, wide in shares(whole.columns, right)}
        <= sizes
    )
    _, down, right = ways[0]
    for top, high in shares(whole.rows, down):
        for left, wide in shares(whole.columns, right):
            yield Rectangle(whole.row + top, whole.column + left, high, wide)


def shares(length: int, parts: int) -> list[tuple[int, int]]:
    """Return where each of some nearly equal parts begins, and its length."""
    edges = [length * i // parts for i in range(parts + 1)]
    return [(low, high - low) for low, high in itertools.pairwise(edges)]


def lanewise_cuts(convolution: "Convolution") -> list[Cut]:
    """Return the vectors of a plane as tiles; in place of a kernel each has the number of its first span."""
    field, cuts, spans = convolution.target.field, [], 0
    for number, each in enumerate(vectors(field, convolution.kernels)):
        y, x = divmod(number, field.geometry.width)
        cuts.append(Cut(y, x, native.Variant(1, 1, 0, outputs_at_a_time(convolution), spans)))
        spans += len(each)
    return cuts


def lanewise(
    convolution: "Convolution", binding: Binding, taps: Array, bounds: list[int], common: dict[str, Any]
) -> plan.Lanewise:
    """Return the structure; `common` are the fields it shares with other convolutions."""
    field = convolution.target.field
    spans = [
        (lane, variant.number, lane == each[-1][0])
        for each in vectors(field, convolution.kernels)
        for lane, variant in each
    ]
    packed = pack_dense(convolution.weight, outputs_at_a_time(convolution), len(taps), bounds)
    return plan.Lanewise(
        weights=binding.keep(packed.weights),
        starts=binding.keep(np.append(packed.starts, packed.weights.size)),
        taps=binding.keep(np.append(taps, np.repeat(taps[-1:], TAPS_AHEAD))),
        bounds=binding.keep(np.array(bounds, np.int32)),
        spans=binding.keep(np.array(spans, np.int32)),
        lane_row=lane_grid(field)[1],
        tap_count=len(taps),
        group_count=len(bounds) - 1,
        **common,
    )
