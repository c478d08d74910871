"""Layers of bytes, and conversions between numbers and bytes: their rules, words, scales and structures.

A layer of bytes is a sparse convolution whose weights are words, the signed bytes of four adjacent input channels; the
layout, the lists and the ways to divide it are the same.
"""

from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import schema
from ...program import (
    Activation,
    Conversion,
    Dequantise,
    Floats,
    Function,
    Quantised,
    QuantisedConv,
    QuantisedLinear,
    Quantum,
)
from ..assemble import Alternative, Assembly, Operation
from ..configs import QUANTISED, Config, sparse_candidates
from ..convolution import Convolution, default_bounds, make_sparse, scratch
from ..layout import Geometry, Route, best_geometry
from ..planner import Planner, lower
from ..values import FieldArray
from .convolutions import buffers_read, make_convolution
from .pointwise import common_fields
from .rows import pointwise

__all__ = ["scales_of", "words_of"]

CLAMPS = (Function.RELU, Function.RELU6)  # a byte has no room for what these cut off


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


# ---------------------------------------------------------------- words, scales and structures


@dataclass(frozen=True)
class Scales:
    """How sums become bytes; see FIELDS_Quantised in c/plan.h."""

    scale: Floats
    shift: Floats
    residual_scale: float = 0.0
    out_scale: float = 1.0
    out_zero: float = 0.0


def scales_of(step: Quantised) -> Scales:
    """Return the scales of a step, for its outputs rounded up to whole words.

    They lead to the bytes at once; to numbers, if the target is numbers or an activation other than a clamp follows.
    """
    source, residual, target = step.source_quantum, step.residual_quantum, step.target_quantum
    scale = step.weight_scale.astype(np.float64) * source.scale
    shift = np.zeros(len(scale)) if step.bias is None else step.bias.astype(np.float64)
    shift -= scale * source.zero * step.weight.reshape(len(scale), -1).sum(1, dtype=np.int64)
    if target is None:
        return Scales(scale.astype(np.float32), shift.astype(np.float32))
    residual_scale = residual.scale if residual else 0.0
    shift -= residual_scale * (residual.zero if residual else 0)
    out_scale, out_zero = 1 / target.scale, float(target.zero)
    if function_of(step) is None:
        scale, shift, residual_scale = (
            scale * out_scale,
            shift * out_scale + out_zero,
            residual_scale * out_scale,
        )
    return Scales(pad(scale), pad(shift), residual_scale, out_scale, out_zero)


def pad(numbers: npt.NDArray[np.float64]) -> Floats:
    return np.pad(numbers, (0, -len(numbers) % 4)).astype(np.float32)


def function_of(step: Quantised) -> Activation | None:
    """Return the activation, unless rounding to bytes is enough."""
    is_clamp = step.activation is not None and step.activation.function in CLAMPS
    return None if is_clamp and step.target_quantum else step.activation


def words_of(weight: npt.NDArray[Any], groups: int, together: int = 4) -> Floats:
    """Return signed bytes as words, (out, in of all groups / 4, height, width), typed as floats.

    There are zeros for more outputs, up to a multiple of `together`.

    >>> weight = np.array([1, 2, 3, 4, -1], np.int8).reshape(1, 5, 1, 1)
    >>> words_of(weight, groups=1).view(np.uint8).reshape(4, 2, 4)[0].tolist()
    [[1, 2, 3, 4], [255, 0, 0, 0]]
    """
    outputs, inputs, high, wide = weight.shape
    whole = np.zeros(
        (outputs + -outputs % together, groups * inputs + -groups * inputs % 4, high, wide), np.int8
    )
    first = np.arange(outputs) // (outputs // groups) * inputs
    whole[np.arange(outputs)[:, None], first[:, None] + np.arange(inputs)] = weight
    quads = whole.reshape(len(whole), -1, 4, high, wide).transpose(0, 1, 3, 4, 2)
    words: Floats = np.ascontiguousarray(quads).view(np.float32)[..., 0]
    return words


def zero_word(quantum: Quantum | None) -> int:
    """Return the word of four bytes that stand for zero; of numbers, the bits of zero.

    >>> hex(zero_word(Quantum(0.1, zero=0x80)))
    '0x80808080'
    """
    return quantum.zero * 0x01010101 if quantum else 0


@dataclass(frozen=True, eq=False)
class QuantisedConvolution:
    """The alternatives for computing a convolution of bytes; `lists` is the same convolution of words."""

    lists: Convolution
    scales: Scales
    target: Quantum | None  # None: numbers

    @property
    def signature(self) -> str:
        return f"int8 {self.lists.signature}{' to floats' if self.target is None else ''}"

    def alternatives(self) -> list[Alternative]:
        """Return the alternatives in the order of estimated cost."""
        return [
            Alternative(config.label, cost, self.maker(config), scratch(self.lists, config))
            for cost, config in sparse_candidates(self.lists, QUANTISED)
        ]

    def maker(self, config: Config) -> Callable[[Assembly], list[tuple[Structure, int]]]:
        return lambda assembly: [self.make(assembly, config)]

    def make(self, assembly: Assembly, config: Config) -> tuple[Structure, int]:
        """Return the structure and its number of tasks."""
        tiles = self.lists.tiles(config)
        bounds = default_bounds(self.lists, config, tiles)
        lists = make_sparse(self.lists, assembly, config, tiles, bounds)
        made: Structure = schema.Quantised(
            lists=assembly.hold(lists),
            scale=assembly.keep(self.scales.scale),
            bounds=assembly.keep(np.array(bounds, np.int32)),
            residual_scale=self.scales.residual_scale,
            out_scale=self.scales.out_scale,
            out_zero=self.scales.out_zero,
            outside=zero_word(self.target),
            to_floats=self.target is None,
        )
        return made, (len(bounds) - 1) * len(tiles) * self.lists.target.field.groups
