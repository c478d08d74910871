"""The rules for concatenation along the channels and for reshaping."""

from ...program import Concat, Reshape
from ..planner import Planner
from ..routes import Route
from ..values import PlainArray
from .dispatch import lower, lower_to_torch
from .pointwise import combine


@lower.register
def _(step: Concat, planner: Planner) -> None:
    values = [planner.values[name] for name in step.sources]
    geometry = next((value.geometry for value in values if value.geometry), None)
    if len(planner.program.shapes[step.target]) != 4 or not geometry:
        lower_to_torch(step, planner)
        return
    planner.values[step.target].not_negative = all(value.not_negative for value in values)
    sources = [planner.image_field(name, Route.pixelwise(geometry)) for name in step.sources]
    target = planner.new_image_field(step.target, geometry)
    channel = 0
    for source in sources:
        planner.emit(combine(step, source, target, first_channel=channel))
        channel += source.field.channels
    planner.fill_border(target, step.name)


@lower.register
def _(step: Reshape, planner: Planner) -> None:
    plain = planner.plain(step.sources[0])
    value = planner.values[step.target]
    value.plain = PlainArray(plain.buffer, plain.slot)
    value.not_negative = planner.values[step.sources[0]].not_negative
