"""The rule for convolutions: in a chain, tile by tile after another one, or alone."""

from dataclasses import replace

from ..convolution import Convolution
from ..planned import Operation
from ..planner import Planner
from ..program import Conv
from ..tilewise import FRONT, Tilewise
from .chains import emit_chain, waits
from .dispatch import lower
from .operands import convolution_of, reads_of


@lower.register
def _(step: Conv, planner: Planner) -> None:
    planner.values[step.target].not_negative = bool(step.activation and step.activation.is_never_negative)
    if waits(step, planner):
        planner.pending[step.target] = step
    elif step.sources[0] in planner.pending:
        emit_chain(step, planner)
    else:
        emit_convolution(step, planner)


def emit_convolution(step: Conv, planner: Planner) -> None:
    """Emit a convolution, joined with the one before it where that is better."""
    convolution = convolution_of(step, planner)
    operation = Operation(
        step.name, "sparse", reads_of(convolution), [convolution.target.buffer], tune=convolution, step=step
    )
    before = planner.operations[-1] if planner.operations else None
    if before and follows(before.tune, convolution):
        planner.operations.pop()
        operation = replace(
            operation,
            reads=[*before.reads, *operation.reads],
            writes=[*before.writes, *operation.writes],
            tune=Tilewise(before.tune, convolution),
            before=before.step,
        )
    planner.emit(operation)
    planner.finish_field(convolution.target, step.name)


def follows(before: object, convolution: Convolution) -> bool:
    """Whether a 1×1 convolution reads what the one before it has just written, and that is too large for the cache."""
    if not isinstance(before, Convolution) or before.target is not convolution.source:
        return False
    if any(buffer is convolution.target.buffer for buffer in reads_of(before)):
        return False  # written over what the first one still reads
    pointwise = all(part.weight.shape[2:] == (1, 1) and part.step == (1, 1) for part in (before, convolution))
    sparse = all(len(part.nonzeros.weight) < 0.5 * part.weight.size for part in (before, convolution))
    one = before.groups == convolution.groups == 1
    return pointwise and sparse and one and 4 * before.target.field.image > FRONT
