"""From a program's steps to kernels and buffers.

Steps are taken in order. Each asks for its sources in the form it needs; a missing form is made by a move. Nothing is
bound to addresses yet: an `Operation` knows its buffers and makes its structure once the arena exists.
"""

from . import native
from .layout import NO_BORDER, Border, Field, Geometry, best_geometry
from .memory import Buffer
from .moves import Moves
from .planned import Binding, Operation
from .program import Add, Affine, Conv, Elementwise, MaxPool, Program, Step
from .routes import Route, Windowed, Windows, route, windows_of
from .values import Laid, Plain, Value

__all__ = ["Binding", "Operation", "Planner"]


class Planner:
    """Holds the values and collects operations."""

    def __init__(self, program: Program, kernels: native.Kernels, threads: int) -> None:
        self.program, self.kernels, self.threads = program, kernels, threads
        self.lanes = kernels.lanes
        self.moves = Moves(self.lanes, threads)
        self.operations: list[Operation] = []
        self.buffers: list[Buffer] = []
        self.values = {name: Value(shape) for name, shape in program.shapes.items()}
        for slot, name in enumerate(program.inputs):
            self.values[name].plain = Plain(None, slot)
        self.pending: dict[str, Conv] = {}  # convolutions that wait for the step they are chained to

    def emit(self, operation: Operation) -> None:
        number = len(self.operations)
        for buffer in (*operation.reads, *operation.writes):
            buffer.used_at(number)
        self.operations.append(operation)

    def buffer(self, size: int) -> Buffer:
        made = Buffer(size)
        self.buffers.append(made)
        return made

    # --- forms of a value ---------------------------------------------------------------------------------------

    def plain(self, name: str) -> Plain:
        """Return a value in the usual order, unpacked if need be."""
        value = self.values[name]
        if value.plain is None:
            target = Plain(self.buffer(value.size))
            self.unpack(name, target)
            value.plain = target
        return value.plain

    def unpack(self, name: str, target: Plain) -> None:
        """Write a value in the usual order to a buffer or a tensor of the caller."""
        value = self.values[name]
        if value.pictures:
            self.emit(self.moves.unpack(name, next(iter(value.pictures.values())), target))
        else:
            self.emit(self.moves.to_rows(name, next(iter(value.rows.values())), target))

    def pictures(self, name: str, wanted: Route) -> Laid:
        """Return a value as a field that serves a route."""
        value = self.values[name]
        have = value.pictures.get(wanted.source)
        if have and wanted.every == (1, 1) and have.field.border.holds(wanted.border):
            return have
        made = self.relaid(name, wanted)
        # Windows that leave the last rows out may read a field that has not got them: no other step may take it.
        if wanted.every == (1, 1) and wanted.source.covers(*value.shape[2:]):
            value.pictures[wanted.source] = made
        return made

    def relaid(self, name: str, wanted: Route, fill: float = 0.0) -> Laid:
        """Lay a value out anew; pixels outside the picture become `fill`."""
        value = self.values[name]
        made = self.field_read(name, wanted)
        laid = Laid(made, self.buffer(made.size))
        if value.pictures:
            have = next(iter(value.pictures.values()))
            self.emit(self.moves.relay(name, have, laid, wanted.every, fill))
        else:
            self.emit(self.moves.pack(name, self.plain(name), value.shape, laid, wanted.every, fill))
        return laid

    def field_read(self, name: str, wanted: Route) -> Field:
        """Return the field as which a route reads a value."""
        images, channels, height, width = self.program.shapes[name]
        high, wide = -(-height // wanted.every[0]), -(-width // wanted.every[1])
        return Field(images, channels, high, wide, wanted.source, wanted.border, self.lanes)

    def rows(self, name: str) -> Laid:
        """Return a value as a field whose pixels are the rows of a matrix."""
        value = self.values[name]
        if value.rows:
            return next(iter(value.rows.values()))
        laid = self.new_rows(name)
        self.emit(self.moves.from_rows(name, self.plain(name), laid))
        return laid

    def new_pictures(
        self, name: str, geometry: Geometry, over: Laid | None = None, step: Step | None = None
    ) -> Laid:
        """Make the field that a step writes, with the border its readers want.

        It is written over its residual `over`, if no later step reads that: half the memory moves.
        """
        value = self.values[name]
        made = Field.of(value.shape, geometry, self.border_wanted(name, geometry), self.lanes)
        if over and step and made == over.field and self.is_last_reader(step, step.sources[1]):
            buffer = over.buffer
        else:
            buffer = self.buffer(made.size)
        value.pictures[geometry] = Laid(made, buffer)
        return value.pictures[geometry]

    def new_rows(self, name: str) -> Laid:
        """Make the field that a step writes, whose pixels are the rows of a matrix."""
        value = self.values[name]
        count, columns = value.matrix
        geometry = best_geometry(1, 1, count, self.lanes)
        made = Field(1, columns, 1, count, geometry, NO_BORDER, self.lanes)
        value.rows[geometry] = Laid(made, self.buffer(made.size))
        return value.rows[geometry]

    def new_plain(self, name: str) -> Buffer:
        buffer = self.buffer(self.values[name].size)
        self.values[name].plain = Plain(buffer)
        return buffer

    def last_plain(self, name: str) -> Plain:
        """Make a place for a value in the usual order: the caller's tensor, if it is one answer that no step reads."""
        if self.program.outputs.count(name) == 1 and not self.program.readers(name):
            slot = len(self.program.inputs) + self.program.outputs.index(name)
            self.values[name].plain = Plain(None, slot)
        else:
            self.new_plain(name)
        made = self.values[name].plain
        assert made is not None
        return made

    def finish_field(self, laid: Laid, name: str) -> None:
        """Fill the border of a field whose patches were just written."""
        if laid.field.border != NO_BORDER:
            self.emit(self.moves.border(name, laid))

    # --- who reads it -------------------------------------------------------------------------------------------

    def is_last_reader(self, step: Step, name: str) -> bool:
        """Whether nothing reads the value after this step: no later step, and none that still waits for another one."""
        readers = self.program.readers(name)
        is_read = any(name in waiting.sources for waiting in self.pending.values())
        is_last = readers[-1] is step and step.sources.count(name) == 1
        return is_last and not is_read and name not in self.program.outputs

    def border_wanted(self, name: str, geometry: Geometry) -> Border:
        """Join the borders of all readers that will read the value in this geometry."""
        border = NO_BORDER
        for reader in self.program.readers(name):
            if not isinstance(reader, Windowed) or reader.sources[0] != name:
                continue
            if isinstance(reader, MaxPool) and self.wants_infinity(reader):
                continue
            wanted = self.route_to(reader.target, windows_of(reader), geometry)
            if wanted.source == geometry and wanted.every == (1, 1):
                border = border.joined(wanted.border)
        return border

    def is_looked_around(self, name: str) -> bool:
        """Whether a reader of this value may look at pixels outside the picture, which then must be zero.

        Steps that take each pixel by itself do not: what they make of such pixels is theirs to set to zero.
        """
        return not all(
            isinstance(reader, Add | Affine | Elementwise)
            or (isinstance(reader, Conv) and (reader.sources[0] != name or windows_of(reader).is_pointwise))
            for reader in self.program.readers(name)
        )

    def route_to(self, target: str, windows: Windows, have: Geometry | None) -> Route:
        """Return how windows make the value `target` from one that has a geometry, or none yet."""
        return route(windows, self.program.shapes[target], have, self.lanes)

    def wants_infinity(self, pool: MaxPool) -> bool:
        """Whether zeros around the picture could be larger than what is in it."""
        shapes = self.program.shapes
        outside = windows_of(pool).look_outside(shapes[pool.sources[0]], shapes[pool.target])
        return outside and not self.values[pool.sources[0]].not_negative
