"""A program's values while it is planned: where each lies, in one layout or several."""

from dataclasses import dataclass, field

from .layout import Field, Geometry
from .memory import Buffer
from .program import Shape


@dataclass(frozen=True)
class Plain:
    """A value in the usual order: in the arena, or in a tensor of the caller."""

    buffer: Buffer | None
    slot: int = -1

    @property
    def buffers(self) -> list[Buffer]:
        return [self.buffer] if self.buffer else []


@dataclass(frozen=True)
class Laid:
    """A value as a field in the arena."""

    field: Field
    buffer: Buffer


@dataclass
class Value:
    """One value: its shape, and the forms of it that exist by now."""

    shape: Shape
    plain: Plain | None = None
    pictures: dict[Geometry, Laid] = field(default_factory=dict)  # (n, c, h, w)
    rows: dict[Geometry, Laid] = field(default_factory=dict)  # rows of a matrix, columns as channels
    not_negative: bool = False

    @property
    def geometry(self) -> Geometry | None:
        """The geometry that it has as pictures, if it has one."""
        return next(iter(self.pictures), None)

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns, where the last axis makes the columns."""
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
