"""Emit a convolution and its reader, a channel-wise step, as one operation."""

from ..chain import Chain, Pooling
from ..convolution import Convolution
from ..layout import NO_BORDER, Field
from ..memory import Buffer
from ..operation import Operation
from ..planner import Planner
from ..program import AveragePool, Conv, MaxPool
from ..routes import Route, Windowed, windows_of
from ..values import FieldArray
from .operands import buffers_read, make_convolution
from .windows import window_maker, window_scales

__all__ = ["can_chain", "emit_chain"]


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


def emit_chain(step: Windowed, planner: Planner) -> None:
    """Emit a pending convolution and the step that reads it as one operation."""
    name = step.sources[0]
    first_step = planner.pending[name]
    have = planner.values[first_step.sources[0]].geometry
    begin = planner.route_to(name, windows_of(first_step), have)
    wanted = planner.route_to(step.target, windows_of(step), begin.target)
    fill = -float("inf") if isinstance(step, MaxPool) and planner.needs_infinity_outside(step) else 0.0
    stays = wanted.source == begin.target and wanted.subsample == (1, 1) and fill == 0.0
    border = wanted.border if stays else NO_BORDER
    middle = Field.of(planner.program.shapes[name], begin.target, border, planner.lanes)
    moved = middle if stays else planner.field_for(name, wanted)
    nowhere = Buffer(0)  # the intermediate value is in scratch memory, not in the arena
    first = make_convolution(first_step, planner, target=FieldArray(middle, nowhere))
    second, target, reads = second_part(step, planner, wanted, FieldArray(moved, nowhere))
    chain = Chain(first, second, moved, fill, subsample=wanted.subsample)
    del planner.pending[name]
    reads = [*buffers_read(first), *reads]
    planner.emit(
        Operation(step.name, "sparse", reads, [target.buffer], tune=chain, step=step, before=first_step)
    )
    planner.fill_border(target, step.name)


def second_part(
    step: Windowed, planner: Planner, wanted: Route, source: FieldArray
) -> tuple[Convolution | Pooling, FieldArray, list[Buffer]]:
    """Return the second part of a chain, the field it writes, and the buffers it reads besides its source."""
    if isinstance(step, Conv):
        convolution = make_convolution(step, planner, source=source)
        residual = convolution.residual
        return convolution, convolution.target, [residual.buffer] if residual else []
    windows = windows_of(step)
    target = planner.new_image_field(step.target, wanted.target)
    scale = None
    if isinstance(step, AveragePool):
        scale = window_scales(step, planner, windows, wanted, count_padding=step.count_padding)
    make = window_maker(windows, wanted, source, target, scale)
    return Pooling(make, f"{type(step).__name__}{windows.kernel}{wanted.step}"), target, []
