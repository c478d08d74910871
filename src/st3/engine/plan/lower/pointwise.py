"""The rules for elementwise steps: sums, products, activations, scale and shift per channel."""

from ctypes import Structure

from ... import schema
from ...program import Activation, Affine, Elementwise, Floats, Multiply, Pairwise, Shape, Step
from ..assemble import Assembly, Operation
from ..layout import Route
from ..planner import Planner, lower, lower_to_torch
from ..structures import clamp
from ..values import FieldArray, PlainArray
from .rows import emit_rowwise, has_few_rows

__all__ = ["combine"]


@lower.register
def _(step: Pairwise, planner: Planner) -> None:
    a, b = (planner.values[name] for name in step.sources)
    target = planner.values[step.target]
    if step.activation:
        target.not_negative = step.activation.is_never_negative
    else:
        target.not_negative = a.not_negative and b.not_negative
    is_same = a.shape == b.shape
    geometry = a.geometry or (b.geometry if is_same else None)
    if geometry and (is_same or b.shape[0] == a.shape[0]):
        emit_image_pair(step, planner, a.shape, b.shape)
    elif (is_same or b.shape == (*a.shape[:-1], 1)) and (len(a.shape) != 4 or a.row_fields or b.row_fields):
        if has_few_rows(step, planner):
            emit_rowwise(
                step, planner, step.activation, other=step.sources[1], is_product=isinstance(step, Multiply)
            )
            return
        fields = [planner.row_field(name) for name in step.sources]
        planner.emit(pair(step, fields[0], planner.new_row_field(step.target), fields[1], 0))
    else:
        lower_to_torch(step, planner)


def emit_image_pair(step: Pairwise, planner: Planner, whole: Shape, other: Shape) -> None:
    """Emit a step on images whose second source may be one number per channel, or one channel for all."""
    a, b = step.sources
    geometry = planner.values[a].geometry or planner.values[b].geometry
    assert geometry is not None
    if other[1:] == (whole[1], 1, 1) and whole[2:] != (1, 1):
        numbers: FieldArray | PlainArray = planner.plain(b)
    elif other in (whole, (whole[0], 1, *whole[2:])):
        numbers = planner.image_field(b, Route.pixelwise(geometry))
    else:
        lower_to_torch(step, planner)
        return
    source = planner.image_field(a, Route.pixelwise(geometry))
    target = planner.new_image_field(step.target, geometry)
    planner.emit(pair(step, source, target, numbers, whole[1]))
    planner.fill_border(target, step.name)


def pair(
    step: Pairwise, source: FieldArray, target: FieldArray, other: FieldArray | PlainArray, channels: int
) -> Operation:
    """Return the operation target = activation(source + other), or of the product.

    A plain array holds `channels` numbers per image.
    """
    begin, end = source.field, target.field
    low, high, function = clamp(step.activation)
    rest = other.field if isinstance(other, FieldArray) else None
    buffers = [other.buffer] if isinstance(other, FieldArray) else other.buffers

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Pair(
            in_=assembly.address(source.buffer) + 4 * begin.origin,
            out=assembly.address(target.buffer) + 4 * end.origin,
            other=assembly.address(other.buffer) + (4 * rest.origin if rest else 0),
            epilogue=schema.Epilogue(
                mask=assembly.keep(end.mask) if end.mask is not None else None,
                low=low,
                high=high,
                function=function,
            ),
            in_image=begin.image,
            in_plane=begin.plane,
            in_row=begin.pitch,
            out_image=end.image,
            out_plane=end.plane,
            out_row=end.pitch,
            other_image=rest.image if rest else channels,
            other_plane=1 if not rest else rest.plane if rest.channels == begin.channels else 0,
            other_row=rest.pitch if rest else 0,
            other_slot=-1 if isinstance(other, FieldArray) else other.slot,
            image_lanes=0 if rest else begin.geometry.grid.images,
            is_product=isinstance(step, Multiply),
            channels=begin.channels,
            height=end.geometry.height,
            width=end.geometry.width,
        ), end.groups * begin.channels

    return Operation(step.name, "combine", [source.buffer, *buffers], [target.buffer], make, step=step)


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
    rank = len(value.shape)
    axis = None if step.channel_axis is None else step.channel_axis % rank
    if value.image_fields and axis in (None, 1):
        source = next(iter(value.image_fields.values()))
        target = planner.new_image_field(step.target, source.field.geometry)
    elif axis not in (None, rank - 1) or (rank == 4 and not value.row_fields) or rank < 2:
        lower_to_torch(step, planner)
        return
    elif has_few_rows(step, planner):
        emit_rowwise(step, planner, activation, scale=scale, shift=shift)
        return
    else:
        source, target = planner.row_field(step.sources[0]), planner.new_row_field(step.target)
    planner.emit(combine(step, source, target, activation=activation, scale=scale, shift=shift))
    planner.fill_border(target, step.name)


def combine(
    step: Step,
    source: FieldArray,
    target: FieldArray,
    *,
    activation: Activation | None = None,
    scale: Floats | None = None,
    shift: Floats | None = None,
    channels: range | None = None,
    first_channel: int = 0,
    every: int = 1,
) -> Operation:
    """Return the operation target[first_channel::every] = activation(source[channels] * scale + shift)."""
    begin, end = source.field, target.field
    chosen = channels or range(begin.channels)
    low, high, function = clamp(activation)

    def make(assembly: Assembly) -> tuple[Structure, int]:
        epilogue = schema.Epilogue(
            mask=assembly.keep(end.mask) if end.mask is not None else None,
            low=low,
            high=high,
            function=function,
        )
        return schema.Combine(
            in_=assembly.address(source.buffer) + 4 * (begin.origin + chosen.start * begin.plane),
            out=assembly.address(target.buffer) + 4 * (end.origin + first_channel * end.plane),
            scale=assembly.keep(scale) if scale is not None else None,
            shift=assembly.keep(shift) if shift is not None else None,
            epilogue=epilogue,
            in_image=begin.image,
            in_plane=chosen.step * begin.plane,
            in_row=begin.pitch,
            out_image=end.image,
            out_plane=every * end.plane,
            out_row=end.pitch,
            channels=len(chosen),
            height=end.geometry.height,
            width=end.geometry.width,
        ), end.groups * len(chosen)

    return Operation(step.name, "combine", [source.buffer], [target.buffer], make, step=step)
