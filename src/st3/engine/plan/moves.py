"""Operations that copy a value from one layout to another."""

from ctypes import Structure
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import schema
from ..program import Resample, Shape, taps_of
from .assemble import Assembly, Operation
from .layout import Field, Ints, Strides, gather_index, part_of_row, row_parts, scatter_index, squares_of
from .values import FieldArray, PlainArray

__all__ = ["Moves", "border_copies"]

PLANES_PER_TASK = 8
LONGEST_COPY = 4096  # floats of a plane when a plain array is copied


@dataclass(frozen=True)
class Moves:
    """Makes moves for vectors of `lanes` floats; `name` is the operation's name in the report."""

    lanes: int
    threads: int

    def pack(
        self,
        name: str,
        source: PlainArray,
        shape: Shape,
        target: FieldArray,
        subsample: tuple[int, int],
        fill: float,
    ) -> Operation:
        """Copy a plain array to a field; pixels outside the image become `fill`."""
        _, channels, height, width = shape
        strides = Strides(channels * height * width, height * width, width, 1)
        index = gather_index(target.field, strides, subsample)
        in_lanes = target.field.geometry.grid.images
        return self._gather(name, source, target, index, fill, in_lanes * strides.image, strides.channel)

    def repack(
        self, name: str, source: FieldArray, target: FieldArray, subsample: tuple[int, int], fill: float
    ) -> Operation:
        """Copy a field to another one; pixels outside the image become `fill`."""
        begin, end = source.field, target.field
        # The best geometry puts as many images in the lanes as it can, so all fields of a value have the same number.
        assert begin.geometry.grid.images == end.geometry.grid.images
        index = gather_index(end, begin, subsample)
        return self._gather(name, PlainArray(source.buffer), target, index, fill, begin.image, begin.plane)

    def resample(self, step: Resample, source: FieldArray, target: FieldArray) -> Operation:
        """Mix the pixels of a field; the pixels of the target outside the image become zero."""
        begin, end = source.field, target.field
        assert begin.geometry.grid.images == end.geometry.grid.images  # as in `repack`
        image, rows, columns = end.pixels(end.border)
        inside = end.inside(end.border)
        rows, columns = np.where(inside, rows, 0), np.where(inside, columns, 0)
        # From here on two further axes: the taps in rows and in columns.
        (row, down), (column, right) = taps_of(step.rows), taps_of(step.columns)
        row, column = row[rows][..., :, None], column[columns][..., None, :]
        exists = inside[..., None, None] & (row >= 0) & (column >= 0)
        at = begin.positions(np.maximum(row, 0), np.maximum(column, 0), image[..., None, None])
        index = _by_vector(np.where(exists, at, -1).astype(np.int32))
        weights = _by_vector(np.where(exists, down[rows][..., :, None] * right[columns][..., None, :], 0))
        per_task = max(1, min(PLANES_PER_TASK, end.channels // (2 * self.threads)))

        def make(assembly: Assembly) -> tuple[Structure, int]:
            return schema.Resample(
                in_=assembly.address(source.buffer),
                out=assembly.address(target.buffer),
                index=assembly.keep(index),
                weights=assembly.keep(weights),
                in_image=begin.image,
                in_plane=begin.plane,
                out_image=end.image,
                out_plane=end.plane,
                vectors=index.shape[0],
                taps=index.shape[1],
                planes=end.channels,
                planes_per_task=per_task,
            ), end.groups * -(-end.channels // per_task)

        return Operation(step.name, "resample", [source.buffer], [target.buffer], make, step=step)

    def _gather(
        self,
        name: str,
        source: PlainArray,
        array: FieldArray,
        index: Ints,
        fill: float,
        in_image: int,
        in_plane: int,
    ) -> Operation:
        target = array.field
        return self._move(
            name,
            source,
            PlainArray(array.buffer),
            index,
            images=target.groups,
            planes=target.channels,
            fill=fill,
            in_image=in_image,
            in_plane=in_plane,
            out_image=target.image,
            out_plane=target.plane,
            last_lanes=self.lanes,
        )

    def unpack(self, name: str, source: FieldArray, target: PlainArray) -> Operation:
        """Copy a field to a plain array, one image of a group after another."""
        begin = source.field
        pixels = begin.height * begin.width
        in_lanes = begin.geometry.grid.images
        index = scatter_index(begin)
        return self._move(
            name,
            PlainArray(source.buffer),
            target,
            index,
            images=begin.groups,
            parts=in_lanes,
            planes=begin.channels,
            in_image=begin.image,
            in_plane=begin.plane,
            out_image=in_lanes * begin.channels * pixels,
            out_plane=pixels,
            out_part=begin.channels * pixels,
            index_image=len(index) // in_lanes,
            last_lanes=pixels - (pixels - 1) // self.lanes * self.lanes,
        )

    def _move(
        self,
        name: str,
        source: PlainArray,
        target: PlainArray,
        index: Ints,
        *,
        images: int,
        planes: int,
        parts: int = 1,
        fill: float = 0.0,
        **sizes: int,
    ) -> Operation:
        per_task = max(1, min(PLANES_PER_TASK, planes // (2 * self.threads)))
        tasks = images * parts * -(-planes // per_task)
        squares = squares_of(index.reshape(-1, self.lanes)) if parts == 1 else None

        def make(assembly: Assembly) -> tuple[Structure, int]:
            return schema.Move(
                in_=assembly.address(source.buffer),
                out=assembly.address(target.buffer),
                in_slot=source.slot,
                out_slot=target.slot,
                index=assembly.keep(index),
                squares=assembly.keep(squares) if squares is not None and squares.any() else None,
                vectors=len(index) // self.lanes // parts,
                planes_per_task=per_task,
                planes=planes,
                parts=parts,
                fill=fill,
                **sizes,
            ), tasks

        return Operation(name, "move", source.buffers, target.buffers, make)

    def copy(self, name: str, source: PlainArray, target: PlainArray, size: int) -> Operation:
        """Copy a plain array to another one."""
        plane = max(each for each in range(1, min(size, LONGEST_COPY) + 1) if size % each == 0)
        index = np.arange(-(-plane // self.lanes) * self.lanes, dtype=np.int32)
        index[plane:] = -1
        return self._move(
            name,
            source,
            target,
            index,
            images=1,
            planes=size // plane,
            in_plane=plane,
            out_plane=plane,
            last_lanes=plane - (plane - 1) // self.lanes * self.lanes,
        )

    def to_rows(self, name: str, source: FieldArray, target: PlainArray) -> Operation:
        """Copy a field whose pixels are matrix rows to a plain array."""
        return self._transpose(name, PlainArray(source.buffer), target, source, to_rows=True)

    def from_rows(self, name: str, source: PlainArray, target: FieldArray) -> Operation:
        """Copy a plain array to a field whose pixels are matrix rows."""
        return self._transpose(name, source, PlainArray(target.buffer), target, to_rows=False)

    def _transpose(
        self, name: str, source: PlainArray, target: PlainArray, array: FieldArray, *, to_rows: bool
    ) -> Operation:
        field = array.field

        def make(assembly: Assembly) -> tuple[Structure, int]:
            return schema.Transpose(
                in_=assembly.address(source.buffer),
                out=assembly.address(target.buffer),
                in_slot=source.slot,
                out_slot=target.slot,
                plane=field.plane,
                rows=field.width,
                columns=field.channels,
                width=field.geometry.width,
                to_rows=to_rows,
            ), -(-field.channels // self.lanes)

        return Operation(name, "move", source.buffers, target.buffers, make)

    def border(self, name: str, array: FieldArray, outside: int = 0) -> Operation:
        """Fill the border of a field with copies of pixels that other lanes own, or the bits of `outside`."""
        field, buffer = array.field, array.buffer
        planes, parts = field.groups * field.channels, row_parts(field, self.threads)
        entries, shuffles, starts = border_copies(field, parts)

        def make(assembly: Assembly) -> tuple[Structure, int]:
            return schema.Border(
                field=assembly.address(buffer),
                entries=assembly.keep(entries),
                shuffles=assembly.keep(shuffles),
                plane=field.plane,
                entry_count=len(entries) // 3,
                shuffle_count=len(shuffles) // (2 * field.lanes),
                starts=assembly.keep(starts),
                planes=planes,
                parts=parts,
                outside=outside,
            ), planes * parts

        return Operation(name, "border", [buffer], [buffer], make)


def _by_vector(taps: Any) -> Any:
    """Return an array of (rows, columns, lanes, taps in rows, taps in columns) as (vectors, taps, lanes)."""
    rows, columns, lanes = taps.shape[:3]
    return np.ascontiguousarray(taps.reshape(rows * columns, lanes, -1).swapaxes(1, 2))


def border_copies(field: Field, parts: int = 1) -> tuple[Ints, Ints, Ints]:
    """Return the border as (to, from, shuffle), the shuffles as lane indices and masks, and where each part starts.

    Entries are sorted by part and shuffle.
    """
    border, grid = field.border, field.geometry.grid
    high, wide, lanes = field.geometry.height, field.geometry.width, field.lanes
    lane = np.arange(lanes)
    entries = []
    shuffles: dict[tuple[int, int], tuple[int, Ints]] = {}
    for y in range(-border.top, high + border.bottom):
        for x in range(-border.left, wide + border.right):
            if 0 <= y < high and 0 <= x < wide:
                continue
            down, right = y // high, x // wide  # the owner of the pixel, in patches from here
            rows, columns = lane // grid.columns % grid.rows + down, lane % grid.columns + right
            exists = (rows >= 0) & (rows < grid.rows) & (columns >= 0) & (columns < grid.columns)
            source = np.where(exists, lane + down * grid.columns + right, 0)
            number = shuffles.setdefault(
                (down, right), (len(shuffles), np.concatenate([source, -exists.astype(int)]).astype(np.int32))
            )
            at = field.origin + y * field.pitch + x * lanes
            owner = field.origin + y % high * field.pitch + x % wide * lanes
            entries.append((part_of_row(y, high, parts), number[0], at, owner))
    entries.sort(key=lambda each: each[:2])
    starts = np.searchsorted([each[0] for each in entries], range(parts + 1)).astype(np.int32)
    table = np.array([each[1] for each in shuffles.values()], dtype=np.int32).reshape(-1)
    ordered = [(to, owner, shuffle) for _, shuffle, to, owner in entries]
    return np.array(ordered, dtype=np.int32).reshape(-1), table, starts
