"""The rules for max pooling and average pooling, alone or at the end of a chain, and global average pooling."""

from ctypes import Structure

import numpy as np

from ... import schema
from ...program import AdaptiveAverage, AveragePool, Floats, GlobalAverage, MaxPool, Step, Windows
from ..assemble import Assembly, Make, Operation
from ..fused import Pooling
from ..layout import NO_BORDER, Field, Route, row_parts
from ..planner import Planner, lower, lower_to_torch
from ..values import FieldArray
from .convolutions import Second, emit_chain


@lower.register
def _(step: MaxPool, planner: Planner) -> None:
    source = planner.values[step.sources[0]]
    planner.values[step.target].not_negative = source.not_negative
    if step.sources[0] in planner.pending:
        emit_chain(step, planner, lambda route, array: second_pooling(step, planner, route, array, None))
        return
    wanted = planner.route_to(step.target, step.windows, source.geometry)
    fill = planner.fill_outside(step, step.windows)
    name = step.sources[0]
    array = planner.lay_out(name, wanted, fill) if fill else planner.image_field(name, wanted)
    emit_windows(step, planner, step.windows, wanted, array, None, has_bytes=step.has_bytes)


@lower.register
def _(step: AveragePool, planner: Planner) -> None:
    planner.values[step.target].not_negative = planner.values[step.sources[0]].not_negative
    windows, counted = step.windows, step.count_padding
    if step.sources[0] not in planner.pending:
        emit_average(step, planner, windows, count_padding=counted)
        return

    def second(route: Route, source: FieldArray) -> Second:
        scale = window_scales(step, planner, windows, route, count_padding=counted)
        return second_pooling(step, planner, route, source, scale)

    emit_chain(step, planner, second)


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
            in_=assembly.origin(source),
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


def emit_windows(
    step: Step,
    planner: Planner,
    windows: Windows,
    wanted: Route,
    source: FieldArray,
    scale: Floats | None,
    *,
    has_bytes: bool = False,
) -> None:
    """Emit average pooling if there is a scale, else max pooling."""
    target = planner.new_image_field(step.target, wanted.target)
    make = window_maker(windows, wanted, source, target, scale, planner.threads, has_bytes=has_bytes)
    planner.emit(Operation(step.name, "pool", [source.buffer], [target.buffer], make, step=step))
    planner.fill_border(target, step.name)


def second_pooling(
    step: MaxPool | AveragePool, planner: Planner, wanted: Route, source: FieldArray, scale: Floats | None
) -> Second:
    """Return pooling as the second part of a chain."""
    target = planner.new_image_field(step.target, wanted.target)
    make = window_maker(step.windows, wanted, source, target, scale)
    return Pooling(make, f"{type(step).__name__}{step.windows.kernel}{wanted.step}"), target, []


def window_scales(
    step: Step, planner: Planner, windows: Windows, wanted: Route, *, count_padding: bool
) -> Floats:
    """Return 1 / (number of pixels) for each window."""
    shapes = planner.program.shapes
    field = Field.of(shapes[step.target], wanted.target, NO_BORDER, planner.lanes)
    _, rows, columns = field.pixels()
    size = shapes[step.sources[0]][2:]
    scale = np.ones(rows.shape, np.float32)
    for axis, at in enumerate((rows, columns)):
        begin = at * windows.stride[axis] - windows.padding[axis]
        end = np.minimum(begin + windows.kernel[axis], size[axis] + windows.padding[axis])
        if not count_padding:
            begin, end = np.maximum(begin, 0), np.minimum(end, size[axis])
        scale /= np.maximum(end - begin, 1)
    return scale


def window_maker(
    windows: Windows,
    wanted: Route,
    source: FieldArray,
    target: FieldArray,
    scale: Floats | None,
    threads: int = 1,
    *,
    has_bytes: bool = False,
) -> Make:
    begin, end = source.field, target.field
    stride = wanted.step
    ky, kx = np.indices(windows.kernel).reshape(2, -1)
    dy, dx = ky * windows.dilation[0] - windows.padding[0], kx * windows.dilation[1] - windows.padding[1]
    taps = (4 * (dy * begin.pitch + dx * begin.lanes)).astype(np.int32)
    planes, parts = end.groups * end.channels, row_parts(end, threads)

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Window(
            in_=assembly.origin(source),
            out=assembly.origin(target),
            taps=assembly.keep(taps),
            scale=assembly.keep(scale),
            mask=assembly.keep(end.mask),
            in_plane=begin.plane,
            out_plane=end.plane,
            in_row=begin.pitch * stride[0],
            in_column=begin.lanes * stride[1],
            out_row=end.pitch,
            tap_count=len(taps),
            height=end.geometry.height,
            width=end.geometry.width,
            planes=planes,
            parts=parts,
            has_bytes=has_bytes,
        ), planes * parts

    return make
