"""The rule for global average pooling."""

from ctypes import Structure

from .. import plan
from ..operation import Binding, Operation
from ..planner import Planner
from ..program import GlobalAverage, Step
from .dispatch import lower, lower_to_torch

__all__ = ["emit_global_average"]


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

    def make(binding: Binding) -> tuple[Structure, int]:
        return plan.Average(
            in_=binding.address(source.buffer) + 4 * field.origin,
            out=binding.address(buffer),
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
