"""The rules for attention, rows of a table, and rows put into a state: all on values in contiguous order."""

import itertools
import math
from ctypes import Structure

from ... import schema
from ...program import Attention, Lookup, Place, View
from ..assemble import Assembly, Operation
from ..planner import Planner, lower, lower_to_torch
from ..values import PlainArray
from .rows import FEW_ROWS

ROWS_PER_TASK = 64  # of many: keys are transposed once for all of them


@lower.register
def _(step: Attention, planner: Planner) -> None:
    images, heads, rows, width = step.query.shape
    sources = [planner.plain(name) for name in step.sources]
    views = [step.query, step.keys, step.values, step.mask or step.until]
    if any(is_moved(*each) for each in zip(sources, views, strict=False)):
        lower_to_torch(step, planner)
        return
    query, keys, values, *rest = sources
    mask, until = (rest[0] if rest and view else None for view in (step.mask, step.until))
    target = planner.new_plain_output(step.target)
    length = step.keys.shape[2]
    per_task = ROWS_PER_TASK if rows > FEW_ROWS else 1
    places = -(-length // (2 * planner.lanes)) * 2 * planner.lanes
    scratch = places * (schema.number("ROWS_TOGETHER") + width) if per_task > 1 else places

    def make(assembly: Assembly) -> tuple[Structure, int]:
        def strides(name: str, view: View | None) -> dict[str, int]:
            image, head, row, _ = view.strides if view else (0, 0, 0, 0)
            return {f"{name}_image": image, f"{name}_head": head, f"{name}_row": row}

        def place(name: str, array: PlainArray | None, view: View | None = None) -> dict[str, int | None]:
            at = (
                assembly.address(array.buffer) + 4 * (view.offset if view else 0)
                if array and array.buffer
                else None
            )
            return {name: at, f"{name}_slot": array.slot if array else -1}

        until_image, until_row = step.until.strides if step.until else (0, 0)
        return schema.Attention(
            **place("query", query, step.query),
            **place("keys", keys, step.keys),
            **place("values", values, step.values),
            **place("mask", mask, step.mask),
            **place("until", until),
            **place("out", target),
            **strides("query", step.query),
            **strides("keys", step.keys),
            **strides("values", step.values),
            **strides("mask", step.mask),
            until_image=until_image,
            until_row=until_row,
            scale=step.scale,
            images=images,
            heads=heads,
            heads_per_key=heads // step.keys.shape[1],
            rows=rows,
            rows_per_task=per_task,
            length=length,
            width=width,
            value_width=step.values.shape[3],
            is_causal=step.is_causal,
        ), images * heads * -(-rows // per_task)

    reads = [buffer for source in sources for buffer in source.buffers]
    planner.emit(Operation(step.name, "attention", reads, target.buffers, make, step=step, scratch=scratch))


def is_moved(source: PlainArray, view: View | None) -> bool:
    """Whether a view starts inside a tensor of the caller, which kernels can only read from its start."""
    return view is not None and view.offset != 0 and source.buffer is None


@lower.register
def _(step: Lookup, planner: Planner) -> None:
    numbers, target = planner.plain(step.sources[0]), planner.new_plain_output(step.target)
    limit, width = step.table.shape
    rows = planner.values[step.target].size // width

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Numbered(
            in_=assembly.keep(step.table),
            in_slot=-1,
            out=assembly.address(target.buffer),
            out_slot=target.slot,
            numbers=assembly.address(numbers.buffer),
            numbers_slot=numbers.slot,
            in_row=width,
            out_row=width,
            limit=limit,
            parts=1,
            rows=rows,
            width=width,
        ), 1

    planner.emit(Operation(step.name, "numbered", numbers.buffers, target.buffers, make, step=step))


@lower.register
def _(step: Place, planner: Planner) -> None:
    """Write only the new rows, if the source is a state that becomes this value and nothing else reads it."""
    program, (state, _, _) = planner.program, step.sources
    rows, numbers = (planner.plain(name) for name in step.sources[1:])
    parts = math.prod(step.rows.shape[: step.axis])
    part = _single_stride(step.rows.shape[: step.axis], step.rows.strides[: step.axis])
    inner = View(step.rows.shape[step.axis + 1 :], step.rows.strides[step.axis + 1 :])
    is_kept = program.states.get(state) == step.target and program.count_reads()[state] == 1
    if not is_kept or part is None or not inner.is_whole or is_moved(rows, step.rows):
        lower_to_torch(step, planner)
        return
    home = planner.values[step.target].plain = planner.plain(state)
    width, limit = math.prod(inner.shape), program.shapes[state][step.axis]

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Numbered(
            in_=assembly.address(rows.buffer) + 4 * step.rows.offset if rows.buffer else None,
            in_slot=rows.slot,
            out_slot=home.slot,
            numbers=assembly.address(numbers.buffer),
            numbers_slot=numbers.slot,
            in_part=part,
            in_row=step.rows.strides[step.axis],
            out_part=limit * width,
            out_row=width,
            limit=limit,
            parts=parts,
            rows=step.rows.shape[step.axis],
            width=width,
            is_target=True,
            wraps=step.wraps,
        ), parts

    planner.emit(Operation(step.name, "numbered", [*rows.buffers, *numbers.buffers], [], make, step=step))


def _single_stride(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """Return the distance between neighbours if several axes are as good as one, else None.

    >>> _single_stride((1, 4), (384, 32)), _single_stride((2, 4), (128, 32)), _single_stride((2, 4), (999, 32))
    (32, 32, None)
    """
    long = [(side, stride) for side, stride in zip(shape, strides, strict=True) if side > 1]
    if not long:
        return 0
    for (_, outer), (side, inner) in itertools.pairwise(long):
        if outer != side * inner:
            return None
    return long[-1][1]
