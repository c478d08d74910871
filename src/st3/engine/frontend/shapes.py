"""Operators that move or pool pixels: reshapes, copies, views, concatenation, pooling."""

from ..program import AdaptiveAverage, AveragePool, Concat, GlobalAverage, MaxPool, Reshape, Step
from .aten_call import AtenCall, NotCovered, aten, covers
from .torch_call import Read

# The same elements in the same order.
RESHAPES = {
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
}
COPIES = {
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.to.dtype,
    aten._to_copy.default,
}
# Some elements, or all in another order: torch returns a view without copying.
VIEWS = {
    aten.chunk.default,
    aten.expand.default,
    aten.permute.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.t.default,
    aten.transpose.int,
    aten.unbind.int,
}


@covers(*RESHAPES)
def _reshape(op: AtenCall) -> Step | Read:
    if op.shape == op.shapes[op.value("self")]:
        return Read(op.value("self"))
    return Reshape(name="", sources=(op.value("self"),), target=op.target)


@covers(*COPIES)
def _identity(op: AtenCall) -> Read:
    return Read(op.value("self"))


@covers(aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default)
def _dropout(op: AtenCall) -> Read:
    if op["train"] and op["p"] > 0:
        raise NotCovered("it is active in eval mode")
    return Read(op.value("input"))


@covers(aten.cat.default)
def _cat(op: AtenCall) -> Step:
    parts = op["tensors"]
    if not all(isinstance(part, Read) for part in parts):
        raise NotCovered("one of its inputs is a constant")
    if op["dim"] % len(op.shape) != 1 or len(op.shape) not in (2, 4):
        raise NotCovered("it does not concatenate channels")
    if any(len(op.shapes[part.name]) != len(op.shape) for part in parts):
        raise NotCovered("one of its inputs is empty")
    return Concat(name="", sources=tuple(part.name for part in parts), target=op.target)


@covers(aten.max_pool2d.default, aten.max_pool2d_with_indices.default)
def _max_pool(op: AtenCall) -> Step:
    op.need_rank("self", 4)
    if op.item not in (None, 0):
        raise NotCovered("it returns indices")
    return MaxPool(
        name="",
        sources=(op.value("self"),),
        target=op.target,
        kernel=op.pair("kernel_size"),
        stride=op.pair("stride") if op["stride"] else op.pair("kernel_size"),
        padding=op.pair("padding"),
        dilation=op.pair("dilation"),
        ceil_mode=op["ceil_mode"],
    )


@covers(aten.avg_pool2d.default)
def _average_pool(op: AtenCall) -> Step:
    op.need_rank("self", 4)
    if op["divisor_override"] is not None:
        raise NotCovered("it overrides the divisor")
    return AveragePool(
        name="",
        sources=(op.value("self"),),
        target=op.target,
        kernel=op.pair("kernel_size"),
        stride=op.pair("stride") if op["stride"] else op.pair("kernel_size"),
        padding=op.pair("padding"),
        ceil_mode=op["ceil_mode"],
        count_padding=op["count_include_pad"],
    )


@covers(aten.adaptive_avg_pool2d.default)
def _adaptive_average(op: AtenCall) -> Step | Read:
    shape = op.need_rank("self", 4)
    if op.shape == shape:
        return Read(op.value("self"))
    kind = GlobalAverage if op.shape[2:] == (1, 1) else AdaptiveAverage
    return kind(name="", sources=(op.value("self"),), target=op.target)


@covers(aten.adaptive_max_pool2d.default)
def _adaptive_max(op: AtenCall) -> Step:
    shape = op.need_rank("self", 4)
    if op.item not in (None, 0) or shape[2] % op.shape[2] or shape[3] % op.shape[3]:
        raise NotCovered("its windows have different sizes")
    window = (shape[2] // op.shape[2], shape[3] // op.shape[3])
    return MaxPool(name="", sources=(op.value("self"),), target=op.target, kernel=window, stride=window)


@covers(aten.mean.dim)
def _mean(op: AtenCall) -> Step:
    op.need_rank("self", 4)
    if sorted(axis % 4 for axis in op["dim"] or ()) != [2, 3] or op["dtype"] is not None:
        raise NotCovered("it is not over height and width")
    return GlobalAverage(name="", sources=(op.value("self"),), target=op.target)
