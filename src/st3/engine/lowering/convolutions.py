"""The rule for convolutions: in a chain, tilewise with the one before, or alone."""

from dataclasses import replace

from ..convolution import Convolution
from ..operation import Operation
from ..planner import Planner
from ..program import Conv
from ..tilewise import LARGE_VALUE_BYTES, Tilewise
from .chains import can_chain, emit_chain
from .dispatch import lower
from .operands import buffers_read, make_convolution


@lower.register
def _(step: Conv, planner: Planner) -> None:
    planner.values[step.target].not_negative = bool(step.activation and step.activation.is_never_negative)
    if can_chain(step, planner):
        planner.pending[step.target] = step
    elif step.sources[0] in planner.pending:
        emit_chain(step, planner)
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
    if before and can_join(before.tune, convolution):
        planner.operations.pop()
        operation = replace(
            operation,
            reads=[*before.reads, *operation.reads],
            writes=[*before.writes, *operation.writes],
            tune=Tilewise(before.tune, convolution),
            before=before.step,
        )
    planner.emit(operation)
    planner.fill_border(convolution.target, step.name)


def can_join(before: object, convolution: Convolution) -> bool:
    """Whether two sparse 1×1 convolutions follow each other and the value between them is too large for the cache."""
    if not isinstance(before, Convolution) or before.target is not convolution.source:
        return False
    if any(buffer is convolution.target.buffer for buffer in buffers_read(before)):
        return False  # the second one overwrites what the first one reads
    pointwise = all(part.weight.shape[2:] == (1, 1) and part.step == (1, 1) for part in (before, convolution))
    sparse = all(len(part.nonzeros.weight) < 0.5 * part.weight.size for part in (before, convolution))
    one = before.groups == convolution.groups == 1
    return pointwise and sparse and one and 4 * before.target.field.image > LARGE_VALUE_BYTES
