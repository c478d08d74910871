"""The rules for elementwise steps: sums, activations, scale and shift per channel."""

from ctypes import Structure

from ... import schema
from ...program import Activation, Add, Affine, Elementwise, Floats, Step
from ..assemble import Assembly
from ..operation import Operation
from ..planner import Planner
from ..routes import Route
from ..structures import clamp
from ..values import FieldArray
from .dispatch import lower, lower_to_torch

__all__ = ["combine"]


@lower.register
def _(step: Add, planner: Planner) -> None:
    values = [planner.values[name] for name in step.sources]
    target = planner.values[step.target]
    if step.activation:
        target.not_negative = step.activation.is_never_negative
    else:
        target.not_negative = all(value.not_negative for value in values)
    geometry = next((value.geometry for value in values if value.geometry), None)
    if len(step.sources) == 2 and geometry:
        a, b = (planner.image_field(name, Route.pixelwise(geometry)) for name in step.sources)
        made = planner.new_image_field(step.target, geometry)
    elif any(value.row_fields for value in values):
        a, b = (planner.row_field(name) for name in step.sources)
        made = planner.new_row_field(step.target)
    else:
        lower_to_torch(step, planner)
        return
    planner.emit(combine(step, a, made, residual=b, activation=step.activation))
    planner.fill_border(made, step.name)


@lower.register
def _(step: Elementwise, planner: Planner) -> None:
    lower_unary(step, planner, step.activation, None, None)


@lower.register
def _(step: Affine, planner: Planner) -> None:
    lower_unary(step, planner, step.activation, step.scale, step.shift)


def lower_unary(
    step: Step, planner: Planner, activation: Activation | None, scale: Floats | None, shift: Floats | None
) -> None:
    """Emit a step with one source, in the layout of that source."""
    value = planner.values[step.sources[0]]
    planner.values[step.target].not_negative = bool(activation and activation.is_never_negative)
    if value.image_fields:
        source = next(iter(value.image_fields.values()))
        target = planner.new_image_field(step.target, source.field.geometry)
    elif value.row_fields and scale is None:
        source, target = next(iter(value.row_fields.values())), planner.new_row_field(step.target)
    else:
        lower_to_torch(step, planner)
        return
    planner.emit(combine(step, source, target, activation=activation, scale=scale, shift=shift))
    planner.fill_border(target, step.name)


def combine(
    step: Step,
    source: FieldArray,
    target: FieldArray,
    *,
    residual: FieldArray | None = None,
    activation: Activation | None = None,
    scale: Floats | None = None,
    shift: Floats | None = None,
    first_channel: int = 0,
) -> Operation:
    """Return the operation target[first_channel:] = activation(source * scale + shift + residual), over channels."""
    begin, end = source.field, target.field
    rest = residual.field if residual else None
    low, high, function = clamp(activation)

    def make(assembly: Assembly) -> tuple[Structure, int]:
        epilogue = schema.Epilogue(
            residual=assembly.address(residual.buffer) + 4 * rest.origin if residual and rest else None,
            residual_image=rest.image if rest else 0,
            residual_plane=rest.plane if rest else 0,
            residual_row=rest.pitch if rest else 0,
            mask=assembly.keep(end.mask) if end.mask is not None else None,
            low=low,
            high=high,
            function=function,
        )
        return schema.Combine(
            in_=assembly.address(source.buffer) + 4 * begin.origin,
            out=assembly.address(target.buffer) + 4 * (end.origin + first_channel * end.plane),
            scale=assembly.keep(scale) if scale is not None else None,
            shift=assembly.keep(shift) if shift is not None else None,
            epilogue=epilogue,
            in_image=begin.image,
            in_plane=begin.plane,
            in_row=begin.pitch,
            out_image=end.image,
            out_plane=end.plane,
            out_row=end.pitch,
            channels=begin.channels,
            height=end.geometry.height,
            width=end.geometry.width,
        ), end.groups * begin.channels

    reads = [source.buffer, *([residual.buffer] if residual else [])]
    return Operation(step.name, "combine", reads, [target.buffer], make, step=step)
