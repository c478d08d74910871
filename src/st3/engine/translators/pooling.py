"""Max, average, adaptive and global pooling."""

from ..aten_call import AtenCall, NotCovered
from ..program import AdaptiveAverage, AveragePool, GlobalAverage, MaxPool, Step
from ..torch_call import Read
from .table import aten, covers


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
