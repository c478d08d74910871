"""The rule for linear layers, and steps on a few rows.

A linear layer is a matrix times a few rows, or a 1×1 convolution with many rows as pixels. Norms, sums, products,
activations and slices of a few rows in contiguous order are one operation.
"""

from ctypes import Structure

import numpy as np

from ... import schema
from ...program import Activation, Floats, Linear, Norm, Step
from ..assemble import Assembly, Operation, clamp
from ..convolution import Convolution
from ..pack import pack_slices
from ..planner import Planner, lower
from .convolutions import buffers_read

__all__ = ["emit_rowwise", "has_few_rows", "pointwise"]

FEW_ROWS = 3  # up to here, lanes are outputs; with more rows, lanes are rows


@lower.register
def _(step: Linear, planner: Planner) -> None:
    value = planner.values[step.target]
    value.not_negative = bool(step.activation and step.activation.is_never_negative)
    rows, _ = value.matrix
    if rows <= FEW_ROWS:
        emit_rows(step, planner, rows)
    else:
        emit_pointwise(step, planner)


def emit_pointwise(step: Linear, planner: Planner) -> None:
    convolution = pointwise(step, planner)
    reads, writes = buffers_read(convolution), [convolution.target.buffer]
    planner.emit(Operation(step.name, "sparse", reads, writes, tune=convolution, step=step))


def pointwise(step: Linear, planner: Planner) -> Convolution:
    """Return a linear layer as a convolution whose pixels are rows."""
    source = planner.row_field(step.sources[0])
    residual = planner.row_field(step.sources[1]) if len(step.sources) > 1 else None
    return Convolution(
        planner.kernels,
        planner.threads,
        step.weight[:, :, None, None],
        step.bias,
        source,
        planner.new_row_field(step.target),
        residual,
        step=(1, 1),
        padding=(0, 0),
        dilation=(1, 1),
        groups=1,
        activation=step.activation,
    )


def emit_rows(step: Linear, planner: Planner, rows: int) -> None:
    plain = planner.plain(step.sources[0])
    residual = planner.plain(step.sources[1]) if len(step.sources) > 1 else None
    target = planner.new_plain_output(step.target)
    outputs, inputs = step.weight.shape
    lists = pack_slices(step.weight, planner.lanes)
    order = lists.order.astype(np.int64)
    bias = np.zeros(len(order), np.float32)
    if step.bias is not None:
        bias[order >= 0] = step.bias[order[order >= 0]]
    low, high, function = clamp(step.activation)
    count = len(order) // planner.lanes
    per_task = max(1, count // (4 * planner.threads))

    def make(assembly: Assembly) -> tuple[Structure, int]:
        return schema.Rows(
            in_=assembly.address(plain.buffer),
            in_slot=plain.slot,
            out=assembly.address(target.buffer),
            out_slot=target.slot,
            residual=assembly.address(residual.buffer) if residual else None,
            residual_slot=residual.slot if residual else -1,
            bias=assembly.keep(bias),
            weights=assembly.keep(lists.weights),
            index=assembly.keep(lists.index),
            order=assembly.keep(lists.order),
            starts=assembly.keep(lists.starts),
            low=low,
            high=high,
            function=function,
            vectors=rows,
            inputs=inputs,
            outputs=outputs,
            slices=count,
            slices_per_task=per_task,
        ), -(-count // per_task)

    reads = [*plain.buffers, *(residual.buffers if residual else [])]
    planner.emit(Operation(step.name, "rows", reads, target.buffers, make, step=step))


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
            scale=assembly.keep(scale),
            shift=assembly.keep(shift),
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
