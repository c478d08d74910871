"""The rules for elementwise steps and for steps that move numbers.

Sums, products, activations, scale and shift per channel; concatenation, selection of channels, resampling, reshaping.
"""

import itertools
from collections.abc import Iterator
from ctypes import Structure

import numpy as np

from ... import schema
from ...program import (
    Activation,
    Affine,
    Concat,
    Elementwise,
    Floats,
    Multiply,
    Pairwise,
    Resample,
    Reshape,
    Select,
    Shape,
    Step,
)
from ..assemble import Assembly, Operation
from ..layout import Route, best_geometry
from ..planner import Planner, lower, lower_to_torch
from ..values import FieldArray, PlainArray
from .rows import emit_rowwise, has_few_rows


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
    rest = other.field if isinstance(other, FieldArray) else None
    buffers = [other.buffer] if isinstance(other, FieldArray) else other.buffers

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Pair(
            other=assembly.address(other.buffer) + (4 * rest.origin if rest else 0),
            epilogue=assembly.epilogue(step.activation, end.mask),
            other_image=rest.image if rest else channels,
            other_plane=1 if not rest else rest.plane if rest.channels == begin.channels else 0,
            other_row=rest.pitch if rest else 0,
            other_slot=-1 if isinstance(other, FieldArray) else other.slot,
            image_lanes=0 if rest else begin.geometry.grid.images,
            is_product=isinstance(step, Multiply),
            channels=begin.channels,
            **common_fields(assembly, source, target),
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

    def make(assembly: Assembly) -> tuple[Structure, int]:
        made = schema.Combine(
            epilogue=assembly.epilogue(activation, end.mask),
            scale=assembly.keep(scale),
            shift=assembly.keep(shift),
            channels=len(chosen),
            **common_fields(assembly, source, target),
        )
        made.in_ += 4 * chosen.start * begin.plane
        made.out += 4 * first_channel * end.plane
        made.in_plane *= chosen.step
        made.out_plane *= every
        return made, end.groups * len(chosen)

    return Operation(step.name, "combine", [source.buffer], [target.buffer], make, step=step)


def common_fields(assembly: Assembly, source: FieldArray, target: FieldArray) -> dict[str, int]:
    """Return what all structures of steps from a field to another one hold: where both are, strides and sizes."""
    begin, end = source.field, target.field
    return {
        "in_": assembly.origin(source),
        "out": assembly.origin(target),
        "in_image": begin.image,
        "in_plane": begin.plane,
        "in_row": begin.pitch,
        "out_image": end.image,
        "out_plane": end.plane,
        "out_row": end.pitch,
        "height": end.geometry.height,
        "width": end.geometry.width,
    }


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
def _(step: Select, planner: Planner) -> None:
    value = planner.values[step.sources[0]]
    planner.values[step.target].not_negative = value.not_negative
    is_range = (np.diff(step.index) == 1).all()
    if value.geometry and step.axis == 1:
        source = next(iter(value.image_fields.values()))
        target = planner.new_image_field(step.target, value.geometry)
    elif step.axis % len(value.shape) != len(value.shape) - 1 or (
        has_few_rows(step, planner) and not is_range
    ):
        lower_to_torch(step, planner)
        return
    elif has_few_rows(step, planner) and planner.plain(step.sources[0]).buffer:
        emit_rowwise(step, planner, first_column=int(step.index[0]))
        return
    else:
        source, target = planner.row_field(step.sources[0]), planner.new_row_field(step.target)
    for first, every, channels in progressions(step.index.tolist()):
        planner.emit(combine(step, source, target, channels=channels, first_channel=first, every=every))
    planner.fill_border(target, step.name)


def progressions(index: list[int]) -> Iterator[tuple[int, int, range]]:
    """Yield (first, every, channels) such that index[first::every] starts with these channels, and all are covered.

    >>> list(progressions([4, 5, 6]))
    [(0, 1, range(4, 7))]
    >>> list(progressions([0, 3, 1, 4, 2, 5]))
    [(0, 2, range(0, 3)), (1, 2, range(3, 6))]
    """
    for every in range(1, len(index) + 1):
        parts = [index[first::every] for first in range(every)]
        if all(later - former == 1 for part in parts for former, later in itertools.pairwise(part)):
            for first, part in enumerate(parts):
                yield first, every, range(part[0], part[-1] + 1)
            return


@lower.register
def _(step: Resample, planner: Planner) -> None:
    value, target = planner.values[step.sources[0]], planner.values[step.target]
    target.not_negative = value.not_negative and min(step.rows.min(), step.columns.min()) >= 0
    images, _, height, width = target.shape
    geometry = best_geometry(images, height, width, planner.lanes)
    have = value.geometry or best_geometry(images, value.shape[2], value.shape[3], planner.lanes)
    source = planner.image_field(step.sources[0], Route.pixelwise(have))
    made: FieldArray = planner.new_image_field(step.target, geometry)
    planner.emit(planner.moves.resample(step, source, made))


@lower.register
def _(step: Reshape, planner: Planner) -> None:
    source, value = planner.values[step.sources[0]], planner.values[step.target]
    value.not_negative = source.not_negative
    if source.row_fields and source.matrix == value.matrix:
        value.row_fields = source.row_fields  # shared: what either adds serves both
        value.plain = source.plain
        return
    plain = planner.plain(step.sources[0])
    value.plain = PlainArray(plain.buffer, plain.slot)
