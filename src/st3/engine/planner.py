"""From a program's steps to kernels and buffers.

Steps are taken in order. Each asks for its sources in the form it needs; a missing form is made by a move. Nothing is
bound to addresses yet: an `Operation` knows its buffers and makes its structure once the arena exists.
"""

from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from . import native
from .layout import (
    NO_BORDER,
    Border,
    Field,
    Geometry,
    Strides,
    best_geometry,
    border_copies,
    gather_index,
    scatter_index,
)
from .memory import Buffer
from .packing import Array
from .program import AveragePool, Conv, MaxPool, Program, Shape, Step
from .routes import Route, Windows, route
from .values import Laid, Plain, Value

PLANES_PER_TASK = 8


@dataclass(frozen=True)
class Binding:
    """What an operation needs to become a structure: addresses of buffers, and a place for its arrays."""

    address: Callable[[Buffer | None], int]
    keep: Callable[[Array], int]
    hold: Callable[[Structure], int]  # keeps a structure that another one points to


@dataclass
class Operation:
    """One call of a kernel, or of torch."""

    name: str
    kernel: str
    reads: list[Buffer]
    writes: list[Buffer]
    make: Callable[[Binding], tuple[Structure, int]] | None = None  # structure and number of tasks
    tune: Any = None  # the alternatives, where there are some
    torch: Callable[..., Tensor] | None = None
    torch_sources: list[tuple[Plain, Shape]] = field(default_factory=list)
    torch_target: tuple[Buffer, Shape] | None = None
    step: Step | None = None
    before: Step | None = None  # the step that was fused into this one


class Planner:
    """Holds the values and collects operations."""

    def __init__(self, program: Program, kernels: native.Kernels, threads: int) -> None:
        self.program, self.kernels, self.threads = program, kernels, threads
        self.lanes = kernels.lanes
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
            self.emit_unpack(next(iter(value.pictures.values())), target, name)
        else:
            self.emit_turn(next(iter(value.rows.values())), target, to_rows=True, name=name)

    def pictures(self, name: str, wanted: Route) -> Laid:
        """Return a value as a field that serves a route."""
        value = self.values[name]
        have = value.pictures.get(wanted.source)
        if have and wanted.every == (1, 1) and have.field.border.holds(wanted.border):
            return have
        made = self.relaid(name, wanted)
        if wanted.every == (1, 1):
            value.pictures[wanted.source] = made
        return made

    def relaid(self, name: str, wanted: Route, fill: float = 0.0) -> Laid:
        """Lay a value out anew; pixels outside the picture become `fill`."""
        value = self.values[name]
        images, channels, height, width = value.shape
        every = wanted.every
        target = Field(
            images,
            channels,
            -(-height // every[0]),
            -(-width // every[1]),
            wanted.source,
            wanted.border,
            self.lanes,
        )
        laid = Laid(target, self.buffer(target.size))
        if value.pictures:
            self.emit_move(next(iter(value.pictures.values())), laid, every, fill, name)
        else:
            self.emit_pack(self.plain(name), value.shape, laid, every, fill, name)
        return laid

    def rows(self, name: str) -> Laid:
        """Return a value as a field whose pixels are the rows of a matrix."""
        value = self.values[name]
        count, columns = value.matrix
        geometry = self.row_geometry(count)
        if geometry not in value.rows:
            made = Field(1, columns, 1, count, geometry, NO_BORDER, self.lanes)
            laid = Laid(made, self.buffer(made.size))
            self.emit_turn(laid, self.plain(name), to_rows=False, name=name)
            value.rows[geometry] = laid
        return value.rows[geometry]

    def row_geometry(self, count: int) -> Geometry:
        return best_geometry(1, 1, count, self.lanes)

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

    def is_last_reader(self, step: Step, name: str) -> bool:
        """Whether nothing reads the value after this step: no later step, and none that still waits for another one."""
        readers = self.program.readers(name)
        is_read = any(name in waiting.sources for waiting in self.pending.values())
        is_last = readers[-1] is step and step.sources.count(name) == 1
        return is_last and not is_read and name not in self.program.outputs

    def new_rows(self, name: str) -> Laid:
        value = self.values[name]
        count, columns = value.matrix
        geometry = self.row_geometry(count)
        made = Field(1, columns, 1, count, geometry, NO_BORDER, self.lanes)
        value.rows[geometry] = Laid(made, self.buffer(made.size))
        return value.rows[geometry]

    def new_plain(self, name: str) -> Buffer:
        buffer = self.buffer(self.values[name].size)
        self.values[name].plain = Plain(buffer)
        return buffer

    def border_wanted(self, name: str, geometry: Geometry) -> Border:
        """Join the borders of all readers that will read the value in this geometry."""
        border = NO_BORDER
        for reader in self.program.readers(name):
            windows = windows_of(reader)
            if windows is None or reader.sources[0] != name:
                continue
            if isinstance(reader, MaxPool) and self.wants_infinity(reader):
                continue
            wanted = route(windows, self.program.shapes[reader.target], geometry, self.lanes)
            if wanted.source == geometry and wanted.every == (1, 1):
                border = border.joined(wanted.border)
        return border

    def wants_infinity(self, pool: MaxPool) -> bool:
        """Whether zeros around the picture could be larger than what is in it."""
        windows, shapes = windows_of(pool), self.program.shapes
        assert windows is not None
        outside = windows.look_outside(shapes[pool.sources[0]], shapes[pool.target])
        return outside and not self.values[pool.sources[0]].not_negative

    # --- moves --------------------------------------------------------------------------------------------------

    def finish_field(self, laid: Laid, name: str) -> None:
        """Fill the border of a field whose patches were just written."""
        made, buffer = laid.field, laid.buffer
        if made.border == NO_BORDER:
            return
        entries, shuffles = border_copies(made)

        def make(binding: Binding) -> tuple[Structure, int]:
            planes = made.groups * made.channels
            return native.Halo(
                field=binding.address(buffer),
                entries=binding.keep(entries),
                shuffles=binding.keep(shuffles),
                plane=made.plane,
                planes=planes,
                entry_count=len(entries) // 3,
            ), planes

        self.emit(Operation(name, "border", [buffer], [buffer], make))

    def emit_pack(
        self, source: Plain, shape: Shape, laid: Laid, every: tuple[int, int], fill: float, name: str
    ) -> None:
        _, channels, height, width = shape
        strides = Strides(channels * height * width, height * width, width, 1)
        target = laid.field
        index = gather_index(target, strides, every)
        in_lanes = target.geometry.grid.images
        self._emit_move(
            name,
            source,
            Plain(laid.buffer),
            index,
            sizes={
                "in_image": in_lanes * strides.image,
                "in_plane": strides.channel,
                "out_image": target.image,
                "out_plane": target.plane,
                "images": target.groups,
                "parts": 1,
                "planes": channels,
                "last_lanes": self.lanes,
                "fill": fill,
            },
        )

    def emit_move(self, source: Laid, laid: Laid, every: tuple[int, int], fill: float, name: str) -> None:
        target, begin = laid.field, source.field
        if target.geometry.grid.images != begin.geometry.grid.images:
            # Pictures change lanes: by way of the usual order.
            plain = Plain(self.buffer(begin.images * begin.channels * begin.height * begin.width))
            self.emit_unpack(source, plain, name)
            shape = (begin.images, begin.channels, begin.height, begin.width)
            self.emit_pack(plain, shape, laid, every, fill, name)
            return
        index = gather_index(target, begin, every)
        self._emit_move(
            name,
            Plain(source.buffer),
            Plain(laid.buffer),
            index,
            sizes={
                "in_image": begin.image,
                "in_plane": begin.plane,
                "out_image": target.image,
                "out_plane": target.plane,
                "images": target.groups,
                "parts": 1,
                "planes": target.channels,
                "last_lanes": self.lanes,
                "fill": fill,
            },
        )

    def emit_unpack(self, source: Laid, target: Plain, name: str) -> None:
        begin = source.field
        pixels = begin.height * begin.width
        in_lanes = begin.geometry.grid.images
        index = scatter_index(begin)
        self._emit_move(
            name,
            Plain(source.buffer),
            target,
            index,
            sizes={
                "in_image": begin.image,
                "in_plane": begin.plane,
                "out_image": in_lanes * begin.channels * pixels,
                "out_plane": pixels,
                "out_part": begin.channels * pixels,
                "index_image": len(index) // in_lanes,
                "images": begin.groups,
                "parts": in_lanes,
                "planes": begin.channels,
                "last_lanes": pixels - (pixels - 1) // self.lanes * self.lanes,
                "fill": 0.0,
            },
        )

    def _emit_move(
        self, name: str, source: Plain, target: Plain, index: Array, sizes: dict[str, float | int]
    ) -> None:
        vectors = len(index) // self.lanes // int(sizes["parts"])
        per_task = max(1, min(PLANES_PER_TASK, int(sizes["planes"]) // (2 * self.threads)))
        tasks = int(sizes["images"] * sizes["parts"]) * -(-int(sizes["planes"]) // per_task)

        def make(binding: Binding) -> tuple[Structure, int]:
            return native.Move(
                in_=binding.address(source.buffer) if source.buffer else None,
                out=binding.address(target.buffer) if target.buffer else None,
                in_slot=source.slot,
                out_slot=target.slot,
                index=binding.keep(index),
                vectors=vectors,
                planes_per_task=per_task,
                **sizes,
            ), tasks

        reads = [source.buffer] if source.buffer else []
        writes = [target.buffer] if target.buffer else []
        self.emit(Operation(name, "move", reads, writes, make))

    def emit_turn(self, laid: Laid, plain: Plain, *, to_rows: bool, name: str) -> None:
        made = laid.field

        def make(binding: Binding) -> tuple[Structure, int]:
            here = binding.address(laid.buffer)
            there = binding.address(plain.buffer) if plain.buffer else None
            return native.Turn(
                in_=here if to_rows else there,
                out=there if to_rows else here,
                in_slot=-1 if to_rows else plain.slot,
                out_slot=plain.slot if to_rows else -1,
                plane=made.plane,
                rows=made.width,
                columns=made.channels,
                width=made.geometry.width,
                to_rows=to_rows,
            ), -(-made.channels // self.lanes)

        there = [plain.buffer] if plain.buffer else []
        reads, writes = ([laid.buffer], there) if to_rows else (there, [laid.buffer])
        self.emit(Operation(name, "move", reads, writes, make))


def windows_of(step: Step) -> Windows | None:
    """Return the windows a step looks at, if it is one that does."""
    if isinstance(step, Conv):
        return Windows(step.weight.shape[2:], step.stride, step.padding, step.dilation)
    if isinstance(step, MaxPool):
        return Windows(step.kernel, step.stride, step.padding, step.dilation)
    if isinstance(step, AveragePool):
        return Windows(step.kernel, step.stride, step.padding, (1, 1))
    return None
