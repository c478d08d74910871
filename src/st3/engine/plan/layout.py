"""The memory layout of images: each lane of a vector owns a patch of an image.

A vector has `lanes` floats. A grid distributes the lanes over images, rows of patches and columns of patches. Vector
(y, x) of a plane holds pixel (y, x) of every lane's patch. A neighbouring pixel is then a neighbouring vector for all
lanes at once, so that every load of a convolution is aligned, even with a stride. Pixels just outside a patch belong to
other lanes; the border around the plane holds copies of them.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..program import Shape, Windows

Ints: TypeAlias = npt.NDArray[np.int32]
MAX_WASTE = 1.1  # keep the input's geometry up to this factor over the fewest vectors possible


class Grid(NamedTuple):
    """The images, rows of patches and columns of patches that share the lanes."""

    images: int
    rows: int
    columns: int


class Border(NamedTuple):
    """The number of vectors on each side of a patch."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    def union(self, other: "Border") -> "Border":
        return Border(*map(max, self, other))

    def contains(self, other: "Border") -> bool:
        return all(mine >= theirs for mine, theirs in zip(self, other, strict=True))


NO_BORDER = Border()


@dataclass(frozen=True)
class Geometry:
    """A grid and the size of each lane's patch."""

    grid: Grid
    height: int
    width: int

    @property
    def vectors(self) -> int:
        return self.height * self.width

    def covers(self, height: int, width: int) -> bool:
        return self.grid.rows * self.height >= height and self.grid.columns * self.width >= width

    def scaled(self, rows: int, columns: int) -> "Geometry":
        return replace(self, height=self.height * rows, width=self.width * columns)


def best_geometry(images: int, height: int, width: int, lanes: int) -> Geometry:
    """Return the geometry with the fewest vectors; among equals, the one with the smallest border."""
    found = []
    for in_lanes in divisors(lanes):
        if images % in_lanes:
            continue
        for rows in divisors(lanes // in_lanes):
            grid = Grid(in_lanes, rows, lanes // in_lanes // rows)
            geometry = Geometry(grid, -(-height // grid.rows), -(-width // grid.columns))
            ring = (geometry.height + 2) * (geometry.width + 2)
            found.append((images // in_lanes * geometry.vectors, ring * images // in_lanes, grid, geometry))
    return min(found, key=lambda each: each[:3])[-1]


def divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


@dataclass(frozen=True)
class Route:
    """The geometries of input and output, the border that is read, and the input step between outputs.

    `subsample` is the stride that the input's layout already applies: for a 1×1 window it keeps only the pixels read.
    """

    source: Geometry
    border: Border
    target: Geometry
    step: tuple[int, int]
    subsample: tuple[int, int] = (1, 1)

    @classmethod
    def pixelwise(cls, geometry: Geometry) -> "Route":
        """Return the route of a pixelwise step."""
        return cls(geometry, NO_BORDER, geometry, (1, 1))


def route(windows: Windows, target: Shape, have: Geometry | None, lanes: int) -> Route:
    """Keep the input's geometry `have` if it wastes little; else use the best one for the output."""
    images, _, height, width = target
    best = best_geometry(images, height, width, lanes)
    (sy, sx) = windows.stride
    if have and have.height % sy == 0 and have.width % sx == 0:
        kept = Geometry(have.grid, have.height // sy, have.width // sx)
        least = best.vectors * (images // best.grid.images)
        if kept.covers(height, width) and kept.vectors * (images // kept.grid.images) <= MAX_WASTE * least:
            return Route(have, reach(windows, have, kept), kept, windows.stride)
    if windows.is_pointwise:
        return Route(best, Border(), best, (1, 1), subsample=windows.stride)
    source = best.scaled(sy, sx)
    return Route(source, reach(windows, source, best), best, windows.stride)


def reach(windows: Windows, source: Geometry, target: Geometry) -> Border:
    """Return the border that the windows of a patch read beyond the input's patch."""

    def after(index: int, patch: int, out: int) -> int:
        reached = (out - 1) * windows.stride[index] + (windows.kernel[index] - 1) * windows.dilation[index]
        return max(0, reached - windows.padding[index] - (patch - 1))

    down, right = after(0, source.height, target.height), after(1, source.width, target.width)
    return Border(windows.padding[0], windows.padding[1], down, right)


@dataclass(frozen=True)
class Field:
    """The layout of a value of shape (images, channels, height, width): a geometry and a border around each plane."""

    images: int
    channels: int
    height: int
    width: int
    geometry: Geometry
    border: Border
    lanes: int

    @classmethod
    def of(cls, shape: tuple[int, ...], geometry: Geometry, border: Border, lanes: int) -> "Field":
        images, channels, height, width = shape
        return cls(images, channels, height, width, geometry, border, lanes)

    @property
    def pitch(self) -> int:
        """Floats from one row of vectors to the next."""
        return (self.border.left + self.geometry.width + self.border.right) * self.lanes

    @property
    def plane(self) -> int:
        """Floats from one channel to the next: an odd number of vectors, so that planes map to different cache sets."""
        vectors = (self.border.top + self.geometry.height + self.border.bottom) * self.pitch // self.lanes
        return (vectors | 1 if vectors > 8 else vectors) * self.lanes

    @property
    def origin(self) -> int:
        """Floats from the start of a plane to vector (0, 0)."""
        return self.border.top * self.pitch + self.border.left * self.lanes

    @property
    def groups(self) -> int:
        """The number of groups of `grid.images` images."""
        return self.images // self.geometry.grid.images

    @property
    def image(self) -> int:
        return self.channels * self.plane

    @property
    def size(self) -> int:
        return self.groups * self.image

    @property
    def is_flat(self) -> bool:
        """Whether the rows of a plane follow one another without a gap."""
        return self.border.left == 0 and self.border.right == 0

    def pixels(self, border: Border = NO_BORDER) -> tuple[Ints, Ints, Ints]:
        """Return the image, row and column of every element of a plane with a border; each (height, width, lanes)."""
        grid, high, wide = self.geometry.grid, self.geometry.height, self.geometry.width
        lane = np.arange(self.lanes, dtype=np.int32)
        y = np.arange(-border.top, high + border.bottom, dtype=np.int32)
        x = np.arange(-border.left, wide + border.right, dtype=np.int32)
        image = lane // (grid.rows * grid.columns)
        rows = y[:, None, None] + (lane // grid.columns % grid.rows * high)
        columns = x[None, :, None] + (lane % grid.columns * wide)
        image, rows, columns = np.broadcast_arrays(image, rows, columns)
        return image, rows, columns

    def inside(self, border: Border = NO_BORDER) -> npt.NDArray[np.bool_]:
        """Return which elements of a plane are pixels inside the image."""
        _, rows, columns = self.pixels(border)
        return (rows >= 0) & (rows < self.height) & (columns >= 0) & (columns < self.width)

    @cached_property
    def mask(self) -> Ints | None:
        """All bits set where a pixel is inside the image; None if all are."""
        inside = self.inside()
        return None if inside.all() else -inside.astype(np.int32)

    def positions(self, rows: Ints, columns: Ints, image: Ints | int = 0) -> Ints:
        """Return the offsets of pixels from the start of a plane, in the patches of the lanes that own them."""
        grid, high, wide = self.geometry.grid, self.geometry.height, self.geometry.width
        lane = (image * grid.rows + rows // high) * grid.columns + columns // wide
        at = self.origin + rows % high * self.pitch + columns % wide * self.lanes + lane
        return np.asarray(at, dtype=np.int32)


def row_parts(field: Field, threads: int) -> int:
    """Return the number of parts, each a few rows, into which the planes of a field are divided among threads.

    A thread that computes the same rows in one layer after another reads what it has written itself.
    """
    return threads if field.groups < threads <= field.geometry.height else 1


def part_of_row(row: int, height: int, parts: int) -> int:
    """Return the part that a row belongs to; rows outside belong to the first or the last part.

    >>> [part_of_row(row, 5, 2) for row in range(-1, 6)]
    [0, 0, 0, 1, 1, 1, 1]
    """
    row = min(max(row, 0), height - 1)
    return next(part for part in range(parts) if row < height * (part + 1) // parts)


class Strides(NamedTuple):
    """The strides of a plain array, in floats."""

    image: int
    channel: int
    row: int
    column: int


def gather_index(target: Field, source: Field | Strides, step: tuple[int, int] = (1, 1)) -> Ints:
    """Return, for each vector of a target plane with its border, the offsets of its lanes in the source's plane.

    -1 outside the image. `step` is the stride in rows and columns of the source.
    """
    image, rows, columns = target.pixels(target.border)
    inside = target.inside(target.border)
    rows, columns = np.where(inside, rows * step[0], 0), np.where(inside, columns * step[1], 0)
    if isinstance(source, Field):
        at = source.positions(rows, columns, image)
    else:
        at = image * source.image + rows * source.row + columns * source.column
    return np.where(inside, at, -1).astype(np.int32).reshape(-1)


def squares_of(index: Ints) -> npt.NDArray[np.uint8]:
    """Return which vectors start a square: as many vectors as lanes, where each lane reads consecutive floats.

    Squares do not overlap, and the last vector is in none.
    """
    vectors, lanes = index.shape
    goes_on = (np.diff(index, axis=0) == np.where(index[:-1] < 0, 0, 1)).all(axis=1)
    found = np.zeros(vectors, np.uint8)
    run = 1  # consecutive vectors up to the current one that are in no square yet
    for last in range(1, vectors - 1):
        run = run + 1 if goes_on[last - 1] or run == 0 else 1
        if run == lanes:
            found[last - lanes + 1] = 1
            run = 0
    return found


def scatter_index(source: Field) -> Ints:
    """Return the offsets of all pixels of each image of a group in the source's plane, padded to whole vectors."""
    rows, columns = np.divmod(np.arange(source.height * source.width, dtype=np.int32), np.int32(source.width))
    missing = -len(rows) % source.lanes
    at = [source.positions(rows, columns, image) for image in range(source.geometry.grid.images)]
    return np.concatenate([np.pad(each, (0, missing), constant_values=-1) for each in at]).astype(np.int32)
