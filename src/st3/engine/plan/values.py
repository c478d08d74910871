"""The values of a program during planning: where each is stored, in one layout or several.

Buffers are ranges of the arena, one block of memory; they overlap where their values are never needed at the same time.
"""

from dataclasses import dataclass, field

from ..program import Shape
from .layout import Field, Geometry

ALIGNMENT = 16  # floats: a cache line
SLACK = 64  # floats after the last buffer


@dataclass(eq=False)
class Buffer:
    """A range of floats in the arena, needed from operation `first` to operation `last`."""

    size: int
    first: int = -1
    last: int = -1
    offset: int = -1

    def mark_used(self, step: int) -> None:
        self.first = step if self.first < 0 else min(self.first, step)
        self.last = max(self.last, step)


def assign_offsets(buffers: list[Buffer]) -> int:
    """Give every buffer the lowest free offset, largest buffers first; return the floats needed."""
    placed: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda each: -each.size):
        overlapping = [other for other in placed if other.first <= buffer.last and buffer.first <= other.last]
        offset = 0
        for other in sorted(overlapping, key=lambda each: each.offset):
            if offset + buffer.size <= other.offset:
                break
            offset = max(offset, -(-(other.offset + other.size) // ALIGNMENT) * ALIGNMENT)
        buffer.offset = offset
        placed.append(buffer)
    return max((each.offset + each.size for each in placed), default=0)


@dataclass(frozen=True)
class PlainArray:
    """A value in contiguous order: in an arena buffer, or in the caller's tensor number `slot`."""

    buffer: Buffer | None
    slot: int = -1

    @property
    def buffers(self) -> list[Buffer]:
        return [self.buffer] if self.buffer else []


@dataclass(frozen=True)
class FieldArray:
    """A field and the arena buffer that holds it."""

    field: Field
    buffer: Buffer


@dataclass
class Value:
    """One value: its shape, and the layouts in which it exists so far."""

    shape: Shape
    plain: PlainArray | None = None
    image_fields: dict[Geometry, FieldArray] = field(default_factory=dict)  # (n, c, h, w)
    row_fields: dict[Geometry, FieldArray] = field(
        default_factory=dict
    )  # matrix rows as pixels, columns as channels
    not_negative: bool = False
    outside: int = 0  # the bits of pixels outside the image; the word of zeros, for a value of bytes

    @property
    def geometry(self) -> Geometry | None:
        """The geometry of its image field, if there is one."""
        return next(iter(self.image_fields), None)

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns; the last axis is the columns."""
        rows = 1
        for side in self.shape[:-1]:
            rows *= side
        return rows, self.shape[-1]

    @property
    def size(self) -> int:
        size = 1
        for side in self.shape:
            size *= side
        return size
