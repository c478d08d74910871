"""The rules for layer norm, RMS norm and group norm."""

from ctypes import Structure
from typing import Any

from ... import schema
from ...program import GroupNorm, Norm
from ..assemble import Assembly, Operation
from ..layout import Route, best_geometry
from ..planner import Planner, lower
from ..values import FieldArray
from .pointwise import common_fields
from .rows import emit_rowwise, has_few_rows


@lower.register
def _(step: Norm, planner: Planner) -> None:
    if step.axis == 1:
        source, target = image_fields(step, planner)
    elif has_few_rows(step, planner):
        emit_rowwise(step, planner, scale=step.scale, shift=step.shift, norm=step)
        return
    else:
        source, target = planner.row_field(step.sources[0]), planner.new_row_field(step.target)
    geometry = target.field.geometry
    tasks = target.field.groups * geometry.height * -(-geometry.width // schema.number("NORM_VECTORS"))

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Norm(
            is_centred=step.is_centred,
            channels=source.field.channels,
            **norm_fields(step, assembly, source, target),
        ), tasks

    planner.emit(Operation(step.name, "norm", [source.buffer], [target.buffer], make, step=step))
    planner.fill_border(target, step.name)


@lower.register
def _(step: GroupNorm, planner: Planner) -> None:
    source, target = image_fields(step, planner)
    field = source.field
    channels = field.channels // step.groups

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.GroupNorm(
            channels=channels,
            groups=step.groups,
            part=1 / (channels * field.height * field.width),
            image_lanes=field.geometry.grid.images,
            **norm_fields(step, assembly, source, target),
        ), field.groups * step.groups

    planner.emit(Operation(step.name, "norm", [source.buffer], [target.buffer], make, step=step))
    planner.fill_border(target, step.name)


def image_fields(step: Norm | GroupNorm, planner: Planner) -> tuple[FieldArray, FieldArray]:
    """Return the fields of source and target, in the geometry that the source has."""
    value = planner.values[step.sources[0]]
    images, _, height, width = value.shape
    geometry = value.geometry or best_geometry(images, height, width, planner.lanes)
    source = planner.image_field(step.sources[0], Route.pixelwise(geometry))
    return source, planner.new_image_field(step.target, geometry)


def norm_fields(
    step: Norm | GroupNorm, assembly: Assembly, source: FieldArray, target: FieldArray
) -> dict[str, Any]:
    return {
        "scale": assembly.keep(step.scale),
        "shift": assembly.keep(step.shift),
        "mask": assembly.keep(target.field.mask),
        "eps": step.eps,
        **common_fields(assembly, source, target),
    }
