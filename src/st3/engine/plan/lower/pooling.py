"""The rules for max pooling, average pooling and global average pooling."""

from ctypes import Structure

from ... import schema
from ...program import AdaptiveAverage, AveragePool, GlobalAverage, MaxPool, Step
from ..assemble import Assembly, Operation
from ..planner import Planner, lower, lower_to_torch
from ..routes import Windows, windows_of
from .convolutions import emit_chain
from .windows import emit_windows, window_scales


@lower.register
def _(step: MaxPool, planner: Planner) -> None:
    source = planner.values[step.sources[0]]
    planner.values[step.target].not_negative = source.not_negative
    if step.sources[0] in planner.pending:
        emit_chain(step, planner)
        return
    windows = windows_of(step)
    wanted = planner.route_to(step.target, windows, source.geometry)
    if planner.needs_infinity_outside(step):
        array = planner.lay_out(step.sources[0], wanted, fill=-float("inf"))
    else:
        array = planner.image_field(step.sources[0], wanted)
    emit_windows(step, planner, windows, wanted, array, None)


@lower.register
def _(step: AveragePool, planner: Planner) -> None:
    planner.values[step.target].not_negative = planner.values[step.sources[0]].not_negative
    if step.sources[0] in planner.pending:
        emit_chain(step, planner)
    else:
        emit_average(step, planner, windows_of(step), count_padding=step.count_padding)


@lower.register
def _(step: AdaptiveAverage, planner: Planner) -> None:
    high, wide = planner.program.shapes[step.sources[0]][2:]
    rows, columns = planner.program.shapes[step.target][2:]
    if high % rows or wide % columns:
        lower_to_torch(step, planner)
    elif (rows, columns) == (1, 1):
        emit_global_average(step, planner)
    else:
        planner.values[step.target].not_negative = planner.values[step.sources[0]].not_negative
        window = (high // rows, wide // columns)
        emit_average(step, planner, Windows(window, window, (0, 0), (1, 1)), count_padding=True)


def emit_average(step: Step, planner: Planner, windows: Windows, *, count_padding: bool) -> None:
    name = step.sources[0]
    wanted = planner.route_to(step.target, windows, planner.values[name].geometry)
    array = planner.image_field(name, wanted)
    scale = window_scales(step, planner, windows, wanted, count_padding=count_padding)
    emit_windows(step, planner, windows, wanted, array, scale)


@lower.register
def _(step: GlobalAverage, planner: Planner) -> None:
    emit_global_average(step, planner)


def emit_global_average(step: Step, planner: Planner) -> None:
    value = planner.values[step.sources[0]]
    if not value.image_fields:
        lower_to_torch(step, planner)
        return
    planner.values[step.target].not_negative = value.not_negative
    source = next(iter(value.image_fields.values()))
    field, buffer = source.field, planner.new_plain(step.target)

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Average(
            in_=assembly.address(source.buffer) + 4 * field.origin,
            out=assembly.address(buffer),
            in_image=field.image,
            in_plane=field.plane,
            in_row=field.pitch,
            scale=1 / (field.height * field.width),
            image_lanes=field.geometry.grid.images,
            channels=field.channels,
            height=field.geometry.height,
            width=field.geometry.width,
        ), field.groups

    planner.emit(Operation(step.name, "pool", [source.buffer], [buffer], make, step=step))
