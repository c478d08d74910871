"""Norms, sums, products, activations and slices of a few rows in contiguous order, as one operation."""

from ctypes import Structure

from ... import schema
from ...program import Activation, Floats, Norm, Step
from ..assemble import Assembly, Operation
from ..planner import Planner
from ..structures import clamp
from .linears import FEW_ROWS

__all__ = ["emit_rowwise", "has_few_rows"]


def has_few_rows(step: Step, planner: Planner) -> bool:
    """Whether the step's target has so few rows that they are computed in contiguous order."""
    return planner.values[step.target].matrix[0] <= FEW_ROWS


def emit_rowwise(
    step: Step,
    planner: Planner,
    activation: Activation | None = None,
    *,
    scale: Floats | None = None,
    shift: Floats | None = None,
    norm: Norm | None = None,
    other: str | None = None,
    is_product: bool = False,
    first_column: int = 0,
) -> None:
    """Emit activation(norm(source[first_column:]) * scale + shift), with the sum or product with another value."""
    source = planner.plain(step.sources[0])
    rest = planner.plain(other) if other else None
    target = planner.new_plain_output(step.target)
    rows, columns = planner.values[step.target].matrix
    in_row = planner.values[step.sources[0]].matrix[1]
    low, high, function = clamp(activation)

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Rowwise(
            in_=assembly.address(source.buffer) + 4 * first_column if source.buffer else None,
            out=assembly.address(target.buffer),
            other=assembly.address(rest.buffer) if rest else None,
            scale=assembly.keep(scale) if scale is not None else None,
            shift=assembly.keep(shift) if shift is not None else None,
            in_row=in_row,
            other_row=planner.values[other].matrix[1] if other else 0,
            function=function,
            eps=norm.eps if norm else 0.0,
            low=low,
            high=high,
            in_slot=source.slot,
            out_slot=target.slot,
            other_slot=rest.slot if rest else -1,
            is_norm=norm is not None,
            is_centred=norm is not None and norm.is_centred,
            is_product=is_product,
            columns=columns,
        ), rows

    reads = [*source.buffers, *(rest.buffers if rest else [])]
    planner.emit(Operation(step.name, "rowwise", reads, target.buffers, make, step=step))
