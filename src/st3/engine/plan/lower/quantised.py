"""The rules for layers of bytes, and for conversions between numbers and bytes."""

from ctypes import Structure
from dataclasses import replace

from ... import schema
from ...program import Conversion, Dequantise, Quantised, QuantisedConv, QuantisedLinear, Quantum
from ..assemble import Assembly, Operation
from ..convolution import Convolution
from ..layout import Geometry, Route, best_geometry
from ..planner import Planner, lower
from ..quantised import QuantisedConvolution, function_of, scales_of, words_of, zero_word
from ..values import FieldArray
from .convolutions import buffers_read, make_convolution
from .pointwise import common_fields
from .rows import pointwise


@lower.register
def _(step: QuantisedConv, planner: Planner) -> None:
    emit_quantised(step, planner, make_convolution(step, planner), step.groups)


@lower.register
def _(step: QuantisedLinear, planner: Planner) -> None:
    emit_quantised(step, planner, pointwise(step, planner), 1)


def emit_quantised(step: Quantised, planner: Planner, numbers: Convolution, groups: int) -> None:
    """Emit a layer of bytes; `numbers` is the same layer with its weight as numbers."""
    target, value = step.target_quantum, planner.values[step.target]
    value.not_negative = bool(step.activation and step.activation.is_never_negative)
    if target:
        note_zero(step.target, target, planner)
    scales = scales_of(step)
    weight = step.weight.reshape(*step.weight.shape[:2], *numbers.weight.shape[2:])
    convolution = replace(
        numbers,
        weight=words_of(weight, groups, 4 if target else 1),
        bias=scales.shift,
        groups=1,
        activation=function_of(step),
    )
    tune = QuantisedConvolution(convolution, scales, target)
    reads, writes = buffers_read(convolution), [convolution.target.buffer]
    planner.emit(Operation(step.name, "quantised", reads, writes, tune=tune, step=step))
    planner.fill_border(convolution.target, step.name, zero_word(target))


def note_zero(name: str, quantum: Quantum, planner: Planner) -> None:
    """Note what is known about a value of bytes."""
    value = planner.values[name]
    value.not_negative, value.outside = quantum.zero == 0, zero_word(quantum)


@lower.register
def _(step: Conversion, planner: Planner) -> None:
    is_back, name = isinstance(step, Dequantise), step.sources[0]
    if is_back:
        planner.values[step.target].not_negative = step.quantum.zero == 0
    else:
        note_zero(step.target, step.quantum, planner)
    if step.axis == 1:
        geometry = planner.values[name].geometry or geometry_for_readers(step.target, planner)
        source = planner.image_field(name, Route.pixelwise(geometry))
        target = planner.new_image_field(step.target, geometry)
    else:
        source, target = planner.row_field(name), planner.new_row_field(step.target)
    planner.emit(convert(step, source, target, is_back=is_back))
    planner.fill_border(target, step.name, 0 if is_back else zero_word(step.quantum))


def geometry_for_readers(name: str, planner: Planner) -> Geometry:
    """Return the geometry that the first reader of a value wants, if the whole image fits into it."""
    images, _, height, width = planner.program.shapes[name]
    reader = planner.program.readers(name)[0]
    if reader.windows:
        wanted = planner.route_to(reader.target, reader.windows, None).source
        if wanted.covers(height, width):
            return wanted
    return best_geometry(images, height, width, planner.lanes)


def convert(step: Conversion, source: FieldArray, target: FieldArray, *, is_back: bool) -> Operation:
    """Return the conversion between two fields of one geometry."""
    quantum = step.quantum
    words, numbers = (source.field, target.field) if is_back else (target.field, source.field)

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Convert(
            mask=assembly.keep(target.field.mask),
            scale=quantum.scale if is_back else 1 / quantum.scale,
            zero=quantum.zero,
            outside=0 if is_back else zero_word(quantum),
            channels=numbers.channels,
            planes=words.channels,
            is_back=is_back,
            **common_fields(assembly, source, target),
        ), words.groups * words.channels

    return Operation(step.name, "convert", [source.buffer], [target.buffer], make, step=step)
