"""The rules for convolutions of bytes, and for conversions between numbers and bytes."""

from ctypes import Structure
from dataclasses import replace

from ... import schema
from ...program import Dequantise, Quantise, QuantisedConv
from ..assemble import Assembly, Operation
from ..layout import Geometry, Route, best_geometry
from ..planner import Planner, lower
from ..quantised import QuantisedConvolution, function_of, scales_of, words_of, zero_word
from ..values import FieldArray
from .convolutions import buffers_read, make_convolution
from .pointwise import common_fields


@lower.register
def _(step: QuantisedConv, planner: Planner) -> None:
    zero = step.target_quantum.zero
    note_zero(step.target, zero, planner)
    scales = scales_of(step)
    convolution = replace(
        make_convolution(step, planner),
        weight=words_of(step.weight, step.groups),
        bias=scales.shift,
        groups=1,
        activation=function_of(step),
    )
    tune = QuantisedConvolution(convolution, scales, zero)
    reads, writes = buffers_read(convolution), [convolution.target.buffer]
    planner.emit(Operation(step.name, "quantised", reads, writes, tune=tune, step=step))
    planner.fill_border(convolution.target, step.name, zero_word(zero))


def note_zero(name: str, zero: int, planner: Planner) -> None:
    """Note what is known about a value of bytes."""
    value = planner.values[name]
    value.not_negative, value.outside = zero == 0, zero_word(zero)


@lower.register
def _(step: Quantise, planner: Planner) -> None:
    note_zero(step.target, step.quantum.zero, planner)
    geometry = planner.values[step.sources[0]].geometry or geometry_for_readers(step.target, planner)
    source = planner.image_field(step.sources[0], Route.pixelwise(geometry))
    target = planner.new_image_field(step.target, geometry)
    planner.emit(convert(step, source, target))
    planner.fill_border(target, step.name, zero_word(step.quantum.zero))


def geometry_for_readers(name: str, planner: Planner) -> Geometry:
    """Return the geometry that the first reader of a value wants, if the whole image fits into it."""
    images, _, height, width = planner.program.shapes[name]
    reader = planner.program.readers(name)[0]
    if reader.windows:
        wanted = planner.route_to(reader.target, reader.windows, None).source
        if wanted.covers(height, width):
            return wanted
    return best_geometry(images, height, width, planner.lanes)


@lower.register
def _(step: Dequantise, planner: Planner) -> None:
    planner.values[step.target].not_negative = step.quantum.zero == 0
    source = next(iter(planner.values[step.sources[0]].image_fields.values()))
    target = planner.new_image_field(step.target, source.field.geometry)
    planner.emit(convert(step, source, target))
    planner.fill_border(target, step.name)


def convert(step: Quantise | Dequantise, source: FieldArray, target: FieldArray) -> Operation:
    """Return the conversion between two fields of one geometry."""
    quantum, is_back = step.quantum, isinstance(step, Dequantise)
    words, numbers = (source.field, target.field) if is_back else (target.field, source.field)

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Convert(
            mask=assembly.keep(target.field.mask),
            scale=quantum.scale if is_back else 1 / quantum.scale,
            zero=quantum.zero,
            outside=0 if is_back else zero_word(quantum.zero),
            channels=numbers.channels,
            planes=words.channels,
            is_back=is_back,
            **common_fields(assembly, source, target),
        ), words.groups * words.channels

    return Operation(step.name, "convert", [source.buffer], [target.buffer], make, step=step)
