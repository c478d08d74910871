"""Each kind of step as operations of the planner."""

from collections.abc import Callable
from ctypes import Structure
from functools import singledispatch

import numpy as np

from . import native, reference
from .convolution import Convolution, clamp
from .fusion import FRONT, Chain, Pooling, Tilewise
from .layout import NO_BORDER, Field, Geometry
from .memory import Buffer
from .packing import slices
from .planner import Binding, Operation, Planner, windows_of
from .program import (
    Activation,
    AdaptiveAverage,
    Add,
    Affine,
    AveragePool,
    Concat,
    Conv,
    Elementwise,
    Floats,
    GlobalAverage,
    Linear,
    MaxPool,
    Reshape,
    Step,
)
from .routes import Route, Windows, route
from .values import Laid, Plain

FEW_ROWS = 3  # up to so many rows, lanes are outputs; beyond, lanes are rows
NOT_NEGATIVE = {"relu", "relu6", "sigmoid", "hardsigmoid"}


@singledispatch
def lower(step: Step, planner: Planner) -> None:
    """Emit the operations of a step: by default, one call of torch."""
    in_torch(step, planner)


def in_torch(step: Step, planner: Planner) -> None:
    sources = [(planner.plain(name), planner.program.shapes[name]) for name in step.sources]
    shape = planner.program.shapes[step.target]
    buffer = planner.new_plain(step.target)
    reads = [plain.buffer for plain, _ in sources if plain.buffer]
    planner.emit(
        Operation(
            step.name,
            "torch",
            reads,
            [buffer],
            torch=lambda *tensors: reference.evaluate(step, list(tensors), shape),
            torch_sources=sources,
            torch_target=(buffer, shape),
            step=step,
        )
    )


@lower.register
def _(step: Conv, planner: Planner) -> None:
    value = planner.values[step.target]
    value.not_negative = bool(step.activation and step.activation.name in NOT_NEGATIVE)
    if waits(step, planner):
        planner.pending[step.target] = step
    elif step.sources[0] in planner.pending:
        emit_chain(step, planner)
    else:
        convolution = convolution_of(step, planner)
        before = planner.operations[-1] if planner.operations else None
        if before and follows(before.tune, convolution):
            planner.operations.pop()
            both = Tilewise(before.tune, convolution)
            reads = [*before.reads, *reads_of(convolution)]
            writes = [*before.writes, convolution.target.buffer]
            planner.emit(
                Operation(step.name, "sparse", reads, writes, tune=both, step=step, before=before.step)
            )
        else:
            planner.emit(
                Operation(
                    step.name,
                    "sparse",
                    reads_of(convolution),
                    [convolution.target.buffer],
                    tune=convolution,
                    step=step,
                )
            )
        planner.finish_field(convolution.target, step.name)


def reads_of(convolution: Convolution) -> list[Buffer]:
    return [convolution.source.buffer, *([convolution.residual.buffer] if convolution.residual else [])]


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


def convolution_of(
    step: Conv, planner: Planner, source: Laid | None = None, target: Laid | None = None
) -> Convolution:
    """Find or make the fields a convolution reads and writes."""
    windows = windows_of(step)
    assert windows is not None
    shape = planner.program.shapes[step.target]
    geometry = source.field.geometry if source else have(planner, step.sources[0])
    wanted = route(windows, shape, geometry, planner.lanes)
    source = source or planner.pictures(step.sources[0], wanted)
    residual = None
    if len(step.sources) > 1:
        residual = planner.pictures(step.sources[1], Route(wanted.target, NO_BORDER, wanted.target, (1, 1)))
    target = target or planner.new_pictures(step.target, wanted.target, over=residual, step=step)
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
    )


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


def emit_chain(step: Conv | MaxPool | AveragePool, planner: Planner) -> None:
    """Emit a convolution that waited, and the step that reads it, as one."""
    first_step = planner.pending[step.sources[0]]
    windows, before = windows_of(step), windows_of(first_step)
    assert windows is not None
    assert before is not None
    name = step.sources[0]
    shape = planner.program.shapes[name]
    begin = route(before, shape, have(planner, first_step.sources[0]), planner.lanes)
    wanted = route(windows, planner.program.shapes[step.target], begin.target, planner.lanes)
    fill = 0.0
    if isinstance(step, MaxPool) and planner.wants_infinity(step):
        fill = -float("inf")
    stays = wanted.source == begin.target and wanted.every == (1, 1) and fill == 0.0
    middle = Field.of(shape, begin.target, wanted.border if stays else NO_BORDER, planner.lanes)
    nowhere = Laid(middle, Buffer(0))
    first = convolution_of(first_step, planner, target=nowhere)
    moved = middle
    if not stays:
        high, wide = -(-shape[2] // wanted.every[0]), -(-shape[3] // wanted.every[1])
        moved = Field(shape[0], shape[1], high, wide, wanted.source, wanted.border, planner.lanes)
    second: Convolution | Pooling
    if isinstance(step, Conv):
        second = convolution_of(step, planner, source=Laid(moved, nowhere.buffer))
        target = second.target
        reads = [*reads_of(first), *([second.residual.buffer] if second.residual else [])]
    else:
        target = planner.new_pictures(step.target, wanted.target)
        share = shares(step, planner, windows, wanted) if isinstance(step, AveragePool) else None
        make = window_maker(planner, windows, wanted, Laid(moved, nowhere.buffer), target, share)
        second = Pooling(make, f"pool{windows.kernel}{wanted.step}")
        reads = reads_of(first)
    chain = Chain(first, second, moved, fill, every=wanted.every)
    reads = [buffer for buffer in reads if buffer is not nowhere.buffer]
    del planner.pending[step.sources[0]]
    planner.emit(
        Operation(step.name, "sparse", reads, [target.buffer], tune=chain, step=step, before=first_step)
    )
    planner.finish_field(target, step.name)


def have(planner: Planner, name: str) -> Geometry | None:
    return next(iter(planner.values[name].pictures), None)


@lower.register
def _(step: Linear, planner: Planner) -> None:
    value = planner.values[step.target]
    value.not_negative = bool(step.activation and step.activation.name in NOT_NEGATIVE)
    rows, _ = value.matrix
    if rows <= FEW_ROWS:
        emit_rows(step, planner, rows)
        return
    source = planner.rows(step.sources[0])
    residual = planner.rows(step.sources[1]) if len(step.sources) > 1 else None
    target = planner.new_rows(step.target)
    weight = step.weight[:, :, None, None]
    convolution = Convolution(
        planner.kernels,
        planner.threads,
        weight,
        step.bias,
        source,
        target,
        residual,
        (1, 1),
        (0, 0),
        (1, 1),
        1,
        step.activation,
    )
    planner.emit(
        Operation(step.name, "sparse", reads_of(convolution), [target.buffer], tune=convolution, step=step)
    )


def emit_rows(step: Linear, planner: Planner, rows: int) -> None:
    plain = planner.plain(step.sources[0])
    residual = planner.plain(step.sources[1]) if len(step.sources) > 1 else None
    if residual and not residual.buffer:
        in_torch(step, planner)
        return
    buffer = planner.new_plain(step.target)
    outputs, inputs = step.weight.shape
    lists = slices(step.weight, planner.lanes)
    order = lists.order.astype(np.int64)
    bias = np.zeros(len(order), np.float32)
    if step.bias is not None:
        bias[order >= 0] = step.bias[order[order >= 0]]
    low, high, function = clamp(step.activation)
    count = len(order) // planner.lanes
    per_task = max(1, count // (4 * planner.threads))

    def make(binding: Binding) -> tuple[Structure, int]:
        return native.Rows(
            in_=binding.address(plain.buffer) if plain.buffer else None,
            in_slot=plain.slot,
            out=binding.address(buffer),
            out_slot=-1,
            residual=binding.address(residual.buffer) if residual and residual.buffer else None,
            bias=binding.keep(bias),
            weights=binding.keep(lists.weights),
            index=binding.keep(lists.index) if lists.index is not None else None,
            order=binding.keep(lists.order),
            starts=binding.keep(lists.starts),
            low=low,
            high=high,
            function=function,
            vectors=rows,
            inputs=inputs,
            outputs=outputs,
            slices=count,
            slices_per_task=per_task,
        ), -(-count // per_task)

    reads = [each.buffer for each in (plain, residual) if each and each.buffer]
    planner.emit(Operation(step.name, "rows", reads, [buffer], make, step=step))


# --- windows ----------------------------------------------------------------------------------------------------


@lower.register
def _(step: MaxPool, planner: Planner) -> None:
    source = planner.values[step.sources[0]]
    planner.values[step.target].not_negative = source.not_negative
    if step.sources[0] in planner.pending:
        emit_chain(step, planner)
        return
    windows = windows_of(step)
    assert windows is not None
    wanted = route(
        windows, planner.program.shapes[step.target], have(planner, step.sources[0]), planner.lanes
    )
    if planner.wants_infinity(step):
        laid = planner.relaid(step.sources[0], wanted, fill=-float("inf"))
    else:
        laid = planner.pictures(step.sources[0], wanted)
    emit_windows(step, planner, windows, wanted, laid, None)


@lower.register
def _(step: AveragePool, planner: Planner) -> None:
    windows = windows_of(step)
    assert windows is not None
    if step.sources[0] in planner.pending:
        planner.values[step.target].not_negative = planner.values[step.sources[0]].not_negative
        emit_chain(step, planner)
    else:
        emit_average(step, planner, windows, step.count_padding)


def emit_average(step: Step, planner: Planner, windows: Windows, count_padding: bool) -> None:
    planner.values[step.target].not_negative = planner.values[step.sources[0]].not_negative
    shape = planner.program.shapes[step.target]
    wanted = route(windows, shape, have(planner, step.sources[0]), planner.lanes)
    laid = planner.pictures(step.sources[0], wanted)
    emit_windows(step, planner, windows, wanted, laid, shares(step, planner, windows, wanted, count_padding))


def shares(
    step: Step, planner: Planner, windows: Windows, wanted: Route, count_padding: bool | None = None
) -> Floats:
    """Return one over the number of pixels in each window."""
    if count_padding is None:
        count_padding = not isinstance(step, AveragePool) or step.count_padding
    shape = planner.program.shapes[step.target]
    field = Field.of(shape, wanted.target, NO_BORDER, planner.lanes)
    _, rows, columns = field.pixels()
    size = planner.program.shapes[step.sources[0]][2:]
    share = np.ones(rows.shape, np.float32)
    for axis, at in enumerate((rows, columns)):
        begin = at * windows.stride[axis] - windows.padding[axis]
        end = np.minimum(begin + windows.kernel[axis], size[axis] + windows.padding[axis])
        if not count_padding:
            begin, end = np.maximum(begin, 0), np.minimum(end, size[axis])
        share /= np.maximum(end - begin, 1)
    return share


def emit_windows(
    step: Step, planner: Planner, windows: Windows, wanted: Route, source: Laid, share: Floats | None
) -> None:
    target = planner.new_pictures(step.target, wanted.target)
    make = window_maker(planner, windows, wanted, source, target, share)
    planner.emit(Operation(step.name, "pool", [source.buffer], [target.buffer], make, step=step))
    planner.finish_field(target, step.name)


def window_maker(
    planner: Planner, windows: Windows, wanted: Route, source: Laid, target: Laid, share: Floats | None
) -> Callable[[Binding], tuple[Structure, int]]:
    begin, end = source.field, target.field
    stride = wanted.step
    ky, kx = np.indices(windows.kernel).reshape(2, -1)
    dy, dx = ky * windows.dilation[0] - windows.padding[0], kx * windows.dilation[1] - windows.padding[1]
    taps = (4 * (dy * begin.pitch + dx * begin.lanes)).astype(np.int32)

    def make(binding: Binding) -> tuple[Structure, int]:
        planes = end.groups * end.channels
        return native.Window(
            in_=binding.address(source.buffer) + 4 * begin.origin,
            out=binding.address(target.buffer) + 4 * end.origin,
            taps=binding.keep(taps),
            scale=binding.keep(share) if share is not None else None,
            mask=binding.keep(end.mask) if end.mask is not None else None,
            in_plane=begin.plane,
            out_plane=end.plane,
            in_row=begin.pitch * stride[0],
            in_column=begin.lanes * stride[1],
            out_row=end.pitch,
            planes=planes,
            tap_count=len(taps),
            height=end.geometry.height,
            width=end.geometry.width,
        ), planes

    return make


@lower.register
def _(step: AdaptiveAverage, planner: Planner) -> None:
    high, wide = planner.program.shapes[step.sources[0]][2:]
    rows, columns = planner.program.shapes[step.target][2:]
    if high % rows or wide % columns:
        in_torch(step, planner)
    elif (rows, columns) == (1, 1):
        lower_global_average(step, planner)
    else:
        window = (high // rows, wide // columns)
        emit_average(step, planner, Windows(window, window, (0, 0), (1, 1)), count_padding=True)


@lower.register
def _(step: GlobalAverage, planner: Planner) -> None:
    lower_global_average(step, planner)


def lower_global_average(step: Step, planner: Planner) -> None:
    value = planner.values[step.sources[0]]
    if not value.pictures:
        in_torch(step, planner)
        return
    planner.values[step.target].not_negative = value.not_negative
    source = next(iter(value.pictures.values()))
    field, buffer = source.field, planner.new_plain(step.target)

    def make(binding: Binding) -> tuple[Structure, int]:
        return native.Average(
            in_=binding.address(source.buffer) + 4 * field.origin,
            out=binding.address(buffer),
            in_image=field.image,
            in_plane=field.plane,
            in_row=field.pitch,
            scale=1 / (field.height * field.width),
            images=field.groups,
            image_lanes=field.geometry.grid.images,
            channels=field.channels,
            height=field.geometry.height,
            width=field.geometry.width,
            last_images=field.geometry.grid.images,
        ), field.groups

    planner.emit(Operation(step.name, "pool", [source.buffer], [buffer], make, step=step))


# --- one number at a time ---------------------------------------------------------------------------------------


@lower.register
def _(step: Add, planner: Planner) -> None:
    values = [planner.values[name] for name in step.sources]
    planner.values[step.target].not_negative = result_not_negative(
        step.activation, [v.not_negative for v in values]
    )
    if len(step.sources) == 2 and any(value.pictures for value in values):
        geometry = next(have(planner, name) for name in step.sources if planner.values[name].pictures)
        assert geometry is not None
        wanted = Route(geometry, NO_BORDER, geometry, (1, 1))
        a, b = (planner.pictures(name, wanted) for name in step.sources)
        emit_combine(step, planner, a, b, planner.new_pictures(step.target, geometry), step.activation)
    elif any(value.rows for value in values):
        a, b = (planner.rows(name) for name in step.sources)
        emit_combine(step, planner, a, b, planner.new_rows(step.target), step.activation)
    else:
        in_torch(step, planner)


def result_not_negative(activation: Activation | None, sources: list[bool]) -> bool:
    return activation.name in NOT_NEGATIVE if activation else all(sources)


@lower.register
def _(step: Elementwise, planner: Planner) -> None:
    lower_alone(step, planner, step.activation, None, None)


@lower.register
def _(step: Affine, planner: Planner) -> None:
    lower_alone(step, planner, step.activation, step.scale, step.shift)


def lower_alone(
    step: Step, planner: Planner, activation: Activation | None, scale: Floats | None, shift: Floats | None
) -> None:
    value = planner.values[step.sources[0]]
    planner.values[step.target].not_negative = bool(activation and activation.name in NOT_NEGATIVE)
    if value.pictures:
        source = next(iter(value.pictures.values()))
        target = planner.new_pictures(step.target, source.field.geometry)
    elif value.rows and scale is None:
        source, target = next(iter(value.rows.values())), planner.new_rows(step.target)
    else:
        in_torch(step, planner)
        return
    emit_combine(step, planner, source, None, target, activation, scale, shift)


@lower.register
def _(step: Concat, planner: Planner) -> None:
    geometries = [have(planner, name) for name in step.sources]
    shape = planner.program.shapes[step.target]
    if len(shape) != 4 or not any(geometries):
        in_torch(step, planner)
        return
    geometry = next(each for each in geometries if each)
    wanted = Route(geometry, NO_BORDER, geometry, (1, 1))
    planner.values[step.target].not_negative = all(planner.values[name].not_negative for name in step.sources)
    sources = [planner.pictures(name, wanted) for name in step.sources]
    target = planner.new_pictures(step.target, geometry)
    channel = 0
    for source in sources:
        combine(step, planner, source, None, target, None, first_channel=channel)
        channel += source.field.channels
    planner.finish_field(target, step.name)


def emit_combine(
    step: Step,
    planner: Planner,
    source: Laid,
    residual: Laid | None,
    target: Laid,
    activation: Activation | None,
    scale: Floats | None = None,
    shift: Floats | None = None,
) -> None:
    combine(step, planner, source, residual, target, activation, scale, shift)
    planner.finish_field(target, step.name)


def combine(
    step: Step,
    planner: Planner,
    source: Laid,
    residual: Laid | None,
    target: Laid,
    activation: Activation | None,
    scale: Floats | None = None,
    shift: Floats | None = None,
    first_channel: int = 0,
) -> None:
    """Emit activation(source * scale + shift + residual) into the target's channels from `first_channel`."""
    begin, end = source.field, target.field
    rest = residual.field if residual else None
    low, high, function = clamp(activation)

    def make(binding: Binding) -> tuple[Structure, int]:
        finish = native.Finish(
            residual=binding.address(residual.buffer) + 4 * rest.origin if residual and rest else None,
            residual_image=rest.image if rest else 0,
            residual_plane=rest.plane if rest else 0,
            residual_row=rest.pitch if rest else 0,
            mask=binding.keep(end.mask) if end.mask is not None else None,
            low=low,
            high=high,
            function=function,
        )
        return native.Combine(
            in_=binding.address(source.buffer) + 4 * begin.origin,
            out=binding.address(target.buffer) + 4 * (end.origin + first_channel * end.plane),
            scale=binding.keep(scale) if scale is not None else None,
            shift=binding.keep(shift) if shift is not None else None,
            finish=finish,
            in_image=begin.image,
            in_plane=begin.plane,
            in_row=begin.pitch,
            out_image=end.image,
            out_plane=end.plane,
            out_row=end.pitch,
            images=end.groups,
            channels=begin.channels,
            height=end.geometry.height,
            width=end.geometry.width,
        ), end.groups * begin.channels

    reads = [source.buffer, *([residual.buffer] if residual else [])]
    # A concat fills its target in parts: it counts as read, so that earlier parts stay.
    planner.emit(Operation(step.name, "combine", reads, [target.buffer], make, step=step))


@lower.register
def _(step: Reshape, planner: Planner) -> None:
    plain = planner.plain(step.sources[0])
    value = planner.values[step.target]
    value.plain = Plain(plain.buffer, plain.slot)
    value.not_negative = planner.values[step.sources[0]].not_negative
