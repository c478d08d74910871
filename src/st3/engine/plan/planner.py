"""The planner turns the steps of a program into operations on buffers.

Steps are lowered in order. Each asks for its sources in the layout it needs; a missing layout is made by a move. An
`Operation` knows its buffers and builds its structure later, when the arena exists.
"""

from functools import singledispatch

import numpy as np

from .. import native, reference
from ..program import Conv, Program, Step, Windows
from .assemble import Operation
from .layout import NO_BORDER, Border, Field, Geometry, Route, best_geometry, route
from .moves import Moves
from .values import Buffer, FieldArray, PlainArray, Value

__all__ = ["Planner", "lower", "lower_to_torch"]


class Planner:
    """Keeps track of the values and collects the operations."""

    def __init__(self, program: Program, kernels: native.Kernels, threads: int) -> None:
        self.program, self.kernels, self.threads = program, kernels, threads
        self.lanes = kernels.lanes
        self.moves = Moves(self.lanes, threads)
        self.operations: list[Operation] = []
        self.buffers: list[Buffer] = []
        self.values = {name: Value(shape) for name, shape in program.shapes.items()}
        # The caller's tensors: arguments, results, states.
        self.slots = {name: slot for slot, name in enumerate(program.arguments)}
        self.slots |= {
            name: slot for slot, name in enumerate(program.states, len(self.slots) + len(program.results))
        }
        for name, slot in self.slots.items():
            self.values[name].plain = PlainArray(None, slot)
        self.pending: dict[str, Conv] = {}  # convolutions to be emitted with their reader, as a chain

    def emit(self, operation: Operation) -> None:
        number = len(self.operations)
        for buffer in (*operation.reads, *operation.writes):
            buffer.mark_used(number)
        self.operations.append(operation)

    def buffer(self, size: int) -> Buffer:
        made = Buffer(size)
        self.buffers.append(made)
        return made

    # --- layouts of a value -------------------------------------------------------------------------------------

    def plain(self, name: str) -> PlainArray:
        """Return a value in contiguous order; unpack it if needed."""
        value = self.values[name]
        if value.plain is None:
            target = PlainArray(self.buffer(value.size))
            self.unpack(name, target)
            value.plain = target
        return value.plain

    def unpack(self, name: str, target: PlainArray) -> None:
        """Emit the move of a value into a plain array."""
        value = self.values[name]
        if value.image_fields:
            self.emit(self.moves.unpack(name, next(iter(value.image_fields.values())), target))
        else:
            self.emit(self.moves.to_rows(name, next(iter(value.row_fields.values())), target))

    def image_field(self, name: str, wanted: Route) -> FieldArray:
        """Return a value as a field for a route."""
        value = self.values[name]
        have = value.image_fields.get(wanted.source)
        if have and wanted.subsample == (1, 1) and have.field.border.contains(wanted.border):
            return have
        made = self.lay_out(name, wanted)
        # Windows that skip the last rows may read a field without them: other steps must not reuse it.
        if wanted.subsample == (1, 1) and wanted.source.covers(*value.shape[2:]):
            value.image_fields[wanted.source] = made
        return made

    def lay_out(self, name: str, wanted: Route, fill: float | None = None) -> FieldArray:
        """Emit the move of a value into a new field for a route.

        Pixels outside the image become `fill`, by default what they are in the value.
        """
        value = self.values[name]
        if fill is None:
            fill = float(np.uint32(value.outside).view(np.float32))
        made = self.field_for(name, wanted)
        array = FieldArray(made, self.buffer(made.size))
        if value.image_fields:
            have = next(iter(value.image_fields.values()))
            self.emit(self.moves.repack(name, have, array, wanted.subsample, fill))
        else:
            self.emit(self.moves.pack(name, self.plain(name), value.shape, array, wanted.subsample, fill))
        return array

    def field_for(self, name: str, wanted: Route) -> Field:
        """Return the layout in which a route reads a value."""
        images, channels, height, width = self.program.shapes[name]
        high, wide = -(-height // wanted.subsample[0]), -(-width // wanted.subsample[1])
        return Field(images, channels, high, wide, wanted.source, wanted.border, self.lanes)

    def row_field(self, name: str) -> FieldArray:
        """Return a value as a field whose pixels are matrix rows."""
        value = self.values[name]
        if value.row_fields:
            return next(iter(value.row_fields.values()))
        array = self.new_row_field(name)
        self.emit(self.moves.from_rows(name, self.plain(name), array))
        return array

    def new_image_field(
        self, name: str, geometry: Geometry, over: FieldArray | None = None, step: Step | None = None
    ) -> FieldArray:
        """Make the field that a step writes, with the border its readers need.

        It reuses the buffer of its residual `over` if no later step reads that, which halves the memory traffic.
        """
        value = self.values[name]
        made = Field.of(value.shape, geometry, self.wanted_border(name, geometry), self.lanes)
        if over and step and made == over.field and self.is_last_reader(step, step.sources[1]):
            buffer = over.buffer
        else:
            buffer = self.buffer(made.size)
        value.image_fields[geometry] = FieldArray(made, buffer)
        return value.image_fields[geometry]

    def new_row_field(self, name: str) -> FieldArray:
        """Make the field that a step writes, with matrix rows as pixels."""
        value = self.values[name]
        count, columns = value.matrix
        geometry = best_geometry(1, 1, count, self.lanes)
        made = Field(1, columns, 1, count, geometry, NO_BORDER, self.lanes)
        value.row_fields[geometry] = FieldArray(made, self.buffer(made.size))
        return value.row_fields[geometry]

    def new_plain(self, name: str) -> Buffer:
        buffer = self.buffer(self.values[name].size)
        self.values[name].plain = PlainArray(buffer)
        return buffer

    def new_plain_output(self, name: str) -> PlainArray:
        """Make the plain array that a step writes: the caller's tensor, if it is an output that no step reads."""
        program = self.program
        if name in program.results and program.outputs.count(name) == 1 and not program.readers(name):
            self.values[name].plain = self.result(program.results.index(name))
        else:
            self.new_plain(name)
        made = self.values[name].plain
        assert made is not None
        return made

    def result(self, number: int) -> PlainArray:
        """Return the caller's tensor for a result."""
        return PlainArray(None, len(self.program.arguments) + number)

    def fill_border(self, array: FieldArray, name: str, outside: int = 0) -> None:
        """Emit the copies to the border of a field whose patches were just written."""
        if array.field.border != NO_BORDER:
            self.emit(self.moves.border(name, array, outside))

    # --- readers of a value -------------------------------------------------------------------------------------

    def is_last_reader(self, step: Step, name: str) -> bool:
        """Whether no later step and no pending step reads the value."""
        readers = self.program.readers(name)
        is_read = any(name in waiting.sources for waiting in self.pending.values())
        is_last = readers[-1] is step and step.sources.count(name) == 1
        return is_last and not is_read and name not in self.program.outputs

    def wanted_border(self, name: str, geometry: Geometry) -> Border:
        """Return the union of the borders of all readers that will read the value in this geometry."""
        border = NO_BORDER
        for reader in self.program.readers(name):
            windows = reader.windows
            if windows is None or reader.sources[0] != name or self.fill_outside(reader, windows):
                continue
            wanted = self.route_to(reader.target, windows, geometry)
            if wanted.source == geometry and wanted.subsample == (1, 1):
                border = border.union(wanted.border)
        return border

    def needs_zeros_outside(self, name: str) -> bool:
        """Whether a reader of this value reads pixels outside the image, which must then be zero."""
        return any(reader.needs_zeros_outside(name) for reader in self.program.readers(name))

    def route_to(self, target: str, windows: Windows, have: Geometry | None) -> Route:
        """Return the route by which windows compute the value `target` from an input in geometry `have`, if any."""
        return route(windows, self.program.shapes[target], have, self.lanes)

    def fill_outside(self, step: Step, windows: Windows) -> float:
        """Return what pixels outside the image must be; zero if it makes no difference.

        Windows may not reach outside, and around values that are not negative, zeros do not change a maximum.
        """
        shapes, source = self.program.shapes, step.sources[0]
        is_safe = self.values[source].not_negative
        reach = windows.reach_outside(shapes[source], shapes[step.target])
        return step.OUTSIDE if reach and not is_safe else 0.0


def lower_to_torch(step: Step, planner: Planner) -> None:
    """Emit a step as one call of torch."""
    sources = [(planner.plain(name), planner.program.shapes[name]) for name in step.sources]
    shape = planner.program.shapes[step.target]
    buffer = planner.new_plain(step.target)
    planner.emit(
        Operation(
            step.name,
            "torch",
            [buffer for plain, _ in sources for buffer in plain.buffers],
            [buffer],
            torch=lambda *tensors: reference.evaluate(step, list(tensors), shape),
            torch_sources=sources,
            torch_target=(buffer, shape),
            step=step,
        )
    )


# Emits the operations of a step: lower/ registers a rule for each kind that has kernels.
lower = singledispatch(lower_to_torch)
