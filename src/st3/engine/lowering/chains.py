"""A convolution that waits for its reader, and both as one operation."""

from ..chain import Chain, Pooling
from ..convolution import Convolution
from ..layout import NO_BORDER, Field
from ..memory import Buffer
from ..planned import Operation
from ..planner import Planner
from ..program import AveragePool, Conv, MaxPool
from ..routes import Route, Windowed, windows_of
from ..values import Laid
from .operands import convolution_of, reads_of
from .windows import shares, window_maker

__all__ = ["emit_chain", "waits"]


def waits(step: Conv, planner: Planner) -> bool:
    """Whether the one reader of this convolution takes each channel by itself."""
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
    """Emit a convolution that waited, and the step that reads it, as one."""
    name = step.sources[0]
    first_step = planner.pending[name]
    have = planner.values[first_step.sources[0]].geometry
    begin = planner.route_to(name, windows_of(first_step), have)
    wanted = planner.route_to(step.target, windows_of(step), begin.target)
    fill = -float("inf") if isinstance(step, MaxPool) and planner.wants_infinity(step) else 0.0
    stays = wanted.source == begin.target and wanted.every == (1, 1) and fill == 0.0
    border = wanted.border if stays else NO_BORDER
    middle = Field.of(planner.program.shapes[name], begin.target, border, planner.lanes)
    moved = middle if stays else planner.field_read(name, wanted)
    nowhere = Buffer(0)  # what lies between the two has no place in the arena
    first = convolution_of(first_step, planner, target=Laid(middle, nowhere))
    second, target, reads = second_of(step, planner, wanted, Laid(moved, nowhere))
    chain = Chain(first, second, moved, fill, every=wanted.every)
    del planner.pending[name]
    reads = [*reads_of(first), *reads]
    planner.emit(
        Operation(step.name, "sparse", reads, [target.buffer], tune=chain, step=step, before=first_step)
    )
    planner.finish_field(target, step.name)


def second_of(
    step: Windowed, planner: Planner, wanted: Route, source: Laid
) -> tuple[Convolution | Pooling, Laid, list[Buffer]]:
    """Return a chain's second part, the field it writes, and what it reads beside the source."""
    if isinstance(step, Conv):
        convolution = convolution_of(step, planner, source=source)
        residual = convolution.residual
        return convolution, convolution.target, [residual.buffer] if residual else []
    windows = windows_of(step)
    target = planner.new_pictures(step.target, wanted.target)
    share = None
    if isinstance(step, AveragePool):
        share = shares(step, planner, windows, wanted, count_padding=step.count_padding)
    make = window_maker(windows, wanted, source, target, share)
    return Pooling(make, f"{type(step).__name__}{windows.kernel}{wanted.step}"), target, []
