"""Max pooling and average pooling as one operation, alone or at the end of a chain."""

from ctypes import Structure

import numpy as np

from ... import schema
from ...program import Floats, Step
from ..assemble import Assembly, Make, Operation
from ..layout import NO_BORDER, Field, row_parts
from ..planner import Planner
from ..routes import Route, Windows
from ..values import FieldArray

__all__ = ["emit_windows", "window_maker", "window_scales"]


def emit_windows(
    step: Step, planner: Planner, windows: Windows, wanted: Route, source: FieldArray, scale: Floats | None
) -> None:
    """Emit average pooling if there is a scale, else max pooling."""
    target = planner.new_image_field(step.target, wanted.target)
    make = window_maker(windows, wanted, source, target, scale, planner.threads)
    planner.emit(Operation(step.name, "pool", [source.buffer], [target.buffer], make, step=step))
    planner.fill_border(target, step.name)


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
) -> Make:
    begin, end = source.field, target.field
    stride = wanted.step
    ky, kx = np.indices(windows.kernel).reshape(2, -1)
    dy, dx = ky * windows.dilation[0] - windows.padding[0], kx * windows.dilation[1] - windows.padding[1]
    taps = (4 * (dy * begin.pitch + dx * begin.lanes)).astype(np.int32)
    planes, parts = end.groups * end.channels, row_parts(end, threads)

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Window(
            in_=assembly.address(source.buffer) + 4 * begin.origin,
            out=assembly.address(target.buffer) + 4 * end.origin,
            taps=assembly.keep(taps),
            scale=assembly.keep(scale) if scale is not None else None,
            mask=assembly.keep(end.mask) if end.mask is not None else None,
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
        ), planes * parts

    return make
