"""The rule for convolutions: alone, or fused with the convolution before or the channel-wise step after."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ...program import AveragePool, Conv, MaxPool
from ..assemble import Operation
from ..convolution import Convolution
from ..fused import LARGE_VALUE_BYTES, Chain, Pooling, Tilewise
from ..layout import NO_BORDER, Field, Route
from ..planner import Planner, lower
from ..values import Buffer, FieldArray

__all__ = ["buffers_read", "emit_chain", "make_convolution"]

# The second part of a chain, the field it writes, and the buffers it reads besides its source.
Second: TypeAlias = tuple[Convolution | Pooling, FieldArray, list[Buffer]]


@lower.register
def _(step: Conv, planner: Planner) -> None:
    planner.values[step.target].not_negative = bool(step.activation and step.activation.is_never_negative)
    if can_chain(step, planner):
        planner.pending[step.target] = step
    elif step.sources[0] in planner.pending:
        emit_chain(step, planner, lambda _, source: second_convolution(step, planner, source))
    else:
        emit_convolution(step, planner)


def emit_convolution(step: Conv, planner: Planner) -> None:
    """Emit a convolution, as one operation with the convolution before it if `can_join`."""
    convolution = make_convolution(step, planner)
    operation = Operation(
        step.name,
        "sparse",
        buffers_read(convolution),
        [convolution.target.buffer],
        tune=convolution,
        step=step,
    )
    before = planner.operations[-1] if planner.operations else None
    first = before.tune if before else None
    if before and isinstance(first, Convolution) and can_join(first, convolution):
        planner.operations.pop()
        operation = replace(
            operation,
            reads=[*before.reads, *operation.reads],
            writes=[*before.writes, *operation.writes],
            tune=Tilewise(first, convolution),
            before=before.step,
        )
    planner.emit(operation)
    planner.fill_border(convolution.target, step.name)


def can_join(before: Convolution, convolution: Convolution) -> bool:
    """Whether two sparse 1×1 convolutions follow each other and the value between them is too large for the cache."""
    if before.target is not convolution.source:
        return False
    if any(buffer is convolution.target.buffer for buffer in buffers_read(before)):
        return False  # the second one overwrites what the first one reads
    pointwise = all(part.weight.shape[2:] == (1, 1) and part.step == (1, 1) for part in (before, convolution))
    sparse = all(part.density < 0.5 for part in (before, convolution))
    one = before.groups == convolution.groups == 1
    return pointwise and sparse and one and 4 * before.target.field.image > LARGE_VALUE_BYTES


def make_convolution(
    step: Conv, planner: Planner, source: FieldArray | None = None, target: FieldArray | None = None
) -> Convolution:
    """Return a convolution; find or make the fields that were not given."""
    have = source.field.geometry if source else planner.values[step.sources[0]].geometry
    wanted = planner.route_to(step.target, step.windows, have)
    source = source or planner.image_field(step.sources[0], wanted)
    residual = None
    if len(step.sources) > 1:
        residual = planner.image_field(step.sources[1], Route.pixelwise(wanted.target))
    target = target or planner.new_image_field(step.target, wanted.target, over=residual, step=step)
    return Convolution(
        planner.kernels,
        planner.threads,
        step.weight,
        step.bias,
        source,
        target,
        residual,
        wanted.step,
        step.padding,
        step.dilation,
        step.groups,
        step.activation,
        planner.needs_zeros_outside(step.target),
    )


def buffers_read(convolution: Convolution) -> list[Buffer]:
    return [convolution.source.buffer, *([convolution.residual.buffer] if convolution.residual else [])]


def can_chain(step: Conv, planner: Planner) -> bool:
    """Whether the only reader of this convolution is a channel-wise step that it can be chained to."""
    readers = planner.program.readers(step.target)
    if len(readers) != 1 or step.target in planner.program.outputs or step.sources[0] in planner.pending:
        return False
    reader = readers[0]
    if reader.sources.count(step.target) != 1 or reader.sources[0] != step.target:
        return False
    if isinstance(reader, Conv):
        alone = (
            reader.groups == reader.weight.shape[0] == step.weight.shape[0] and reader.weight.shape[1] == 1
        )
        return alone and step.groups == 1
    return isinstance(reader, MaxPool | AveragePool) and step.groups == 1


def emit_chain(
    step: Conv | MaxPool | AveragePool, planner: Planner, make_second: Callable[[Route, FieldArray], Second]
) -> None:
    """Emit a pending convolution and the step that reads it as one operation.

    `make_second` makes its second part for a route and a source, which is in scratch memory.
    """
    name = step.sources[0]
    first_step = planner.pending[name]
    have = planner.values[first_step.sources[0]].geometry
    begin = planner.route_to(name, first_step.windows, have)
    wanted = planner.route_to(step.target, step.windows, begin.target)
    fill = planner.fill_outside(step, step.windows)
    stays = wanted.source == begin.target and wanted.subsample == (1, 1) and fill == 0.0
    border = wanted.border if stays else NO_BORDER
    middle = Field.of(planner.program.shapes[name], begin.target, border, planner.lanes)
    moved = middle if stays else planner.field_for(name, wanted)
    nowhere = Buffer(0)  # the intermediate value is in scratch memory, not in the arena
    first = make_convolution(first_step, planner, target=FieldArray(middle, nowhere))
    second, target, reads = make_second(wanted, FieldArray(moved, nowhere))
    chain = Chain(first, second, moved, fill, subsample=wanted.subsample)
    del planner.pending[name]
    reads = [*buffers_read(first), *reads]
    planner.emit(
        Operation(step.name, "sparse", reads, [target.buffer], tune=chain, step=step, before=first_step)
    )
    planner.fill_border(target, step.name)


def second_convolution(step: Conv, planner: Planner, source: FieldArray) -> Second:
    convolution = make_convolution(step, planner, source=source)
    residual = convolution.residual
    return convolution, convolution.target, [residual.buffer] if residual else []
