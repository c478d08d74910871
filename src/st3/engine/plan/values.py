"""The values of a program during planning: where each is stored, in one layout or several."""

from dataclasses import dataclass, field

from ..program import Shape
from .layout import Field, Geometry
from .memory import Buffer


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
