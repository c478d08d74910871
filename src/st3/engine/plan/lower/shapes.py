"""The rules for steps that move numbers: concatenation, selection of channels, up-sampling, reshaping."""

import itertools
from collections.abc import Iterator

import numpy as np

from ...program import Concat, Reshape, Select, Upsample
from ..layout import Route, best_geometry
from ..planner import Planner, lower, lower_to_torch
from ..values import FieldArray, PlainArray
from .pointwise import combine
from .rows import emit_rowwise, has_few_rows


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
def _(step: Upsample, planner: Planner) -> None:
    value, target = planner.values[step.sources[0]], planner.values[step.target]
    target.not_negative = value.not_negative
    images, _, height, width = target.shape
    geometry = best_geometry(images, height, width, planner.lanes)
    have = value.geometry or best_geometry(images, value.shape[2], value.shape[3], planner.lanes)
    source = planner.image_field(step.sources[0], Route.pixelwise(have))
    made: FieldArray = planner.new_image_field(step.target, geometry)
    planner.emit(planner.moves.enlarge(step.name, source, made, step))


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
