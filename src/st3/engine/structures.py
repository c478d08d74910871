"""What a kernel is called with: a convolution's structure for one config, its weights packed."""

from ctypes import Structure
from typing import TYPE_CHECKING, Any

import numpy as np

from . import plan
from .config import Config
from .lanewise import KERNEL as LANEWISE
from .lanewise import lanewise
from .layout import Ints
from .packing import Array, pack, pack_dense, tap_bytes
from .planned import Binding
from .program import Activation
from .tiles import Cut

if TYPE_CHECKING:
    from .convolution import Convolution

MOST_OUTPUTS = 32  # at a time, of any kernel
SECOND_CACHE = 1024 * 1024  # bytes of weights that a group of outputs may have


def structure(
    convolution: "Convolution", binding: Binding, config: Config, bounds: list[int] | None = None
) -> tuple[Structure, int]:
    """Return the structure and the number of its tasks; `bounds` are where groups of outputs begin."""
    cuts = convolution.cuts(config)
    if config.kernel == "depthwise":
        return depthwise(convolution, binding, cuts)
    bounds = bounds or usual_bounds(convolution, config, cuts)
    make = {"sparse": sparse, "dense": dense, LANEWISE: across_lanes}[config.kernel]
    tasks = (len(bounds) - 1) * len(cuts) * convolution.target.field.groups
    return make(convolution, binding, config, cuts, bounds), tasks


def sparse(
    convolution: "Convolution", binding: Binding, config: Config, cuts: list[Cut], bounds: list[int]
) -> plan.Sparse:
    lists = pack(convolution.nonzeros, cuts[0].variant.outputs, config.channels_per_block, bounds)
    return plan.Sparse(
        items=binding.keep(lists.items),
        lowest=lists.lowest,
        outputs=binding.keep(lists.outputs),
        lengths=binding.keep(lists.lengths),
        blocks=binding.keep(lists.blocks),
        groups=binding.keep(lists.groups),
        group_count=len(bounds) - 1,
        by_place=is_by_place(convolution, config, cuts),
        **shared(convolution, binding, cuts),
    )


def dense(
    convolution: "Convolution", binding: Binding, config: Config, cuts: list[Cut], bounds: list[int]
) -> plan.Dense:
    taps_per_block = config.channels_per_block * int(np.prod(convolution.weight.shape[2:]))
    packed = pack_dense(convolution.weight, cuts[0].variant.outputs, taps_per_block, bounds)
    return plan.Dense(
        weights=binding.keep(packed.weights),
        starts=binding.keep(packed.starts),
        taps=binding.keep(all_taps(convolution)),
        blocks=binding.keep(packed.blocks),
        block_count=len(packed.blocks) - 1,
        bounds=binding.keep(np.array(bounds, np.int32)),
        group_count=len(bounds) - 1,
        by_place=is_by_place(convolution, config, cuts),
        **shared(convolution, binding, cuts),
    )


def across_lanes(
    convolution: "Convolution", binding: Binding, config: Config, cuts: list[Cut], bounds: list[int]
) -> plan.Lanewise:
    common = shared(convolution, binding, cuts)
    for unused in ("in_row", "out_row", "mask_row", "in_column"):
        del common[unused]
    return lanewise(convolution, binding, all_taps(convolution), bounds, common)


def all_taps(convolution: "Convolution") -> Ints:
    """Return where the inputs of all weights of an output lie, in bytes from its own place."""
    _, inputs, high, wide = convolution.weight.shape
    dilation, padding = convolution.dilation, convolution.padding
    channel, ky, kx = (each.reshape(-1).astype(np.int32) for each in np.indices((inputs, high, wide)))
    dy, dx = ky * dilation[0] - padding[0], kx * dilation[1] - padding[1]
    return tap_bytes(convolution.source.field, channel, dy, dx)


def depthwise(convolution: "Convolution", binding: Binding, cuts: list[Cut]) -> tuple[plan.Depthwise, int]:
    source, images = convolution.source.field, convolution.target.field.groups
    channels = len(convolution.weight)
    per_task = max(1, min(8, channels * images // (4 * convolution.threads)))
    common = shared(convolution, binding, cuts)
    del common["in_column"], common["images"]
    common["in_row"] = source.pitch
    return plan.Depthwise(
        weights=binding.keep(convolution.weight),
        in_plane=source.plane,
        first_tap=convolution.padding[0] * source.pitch + convolution.padding[1] * source.lanes,
        channels=channels,
        channels_per_task=per_task,
        **common,
    ), -(-channels // per_task) * images


def shared(convolution: "Convolution", binding: Binding, cuts: list[Cut]) -> dict[str, Any]:
    """Return the fields that all these structures have in common."""
    source, target, step = convolution.source, convolution.target, convolution.step
    begin, end, flat = source.field, target.field, convolution.is_flat
    # A bundle may reach beyond the last output.
    bias = np.zeros(len(convolution.weight) + MOST_OUTPUTS, np.float32)
    if convolution.bias is not None:
        bias[: len(convolution.weight)] = convolution.bias
    return {
        "in_": binding.address(source.buffer) + 4 * begin.origin,
        "out": binding.address(target.buffer) + 4 * end.origin,
        "bias": binding.keep(bias),
        "finish": finish(convolution, binding),
        "tiles": binding.keep(tiles(convolution, cuts)),
        "in_image": begin.image,
        "out_image": end.image,
        "out_plane": end.plane,
        "in_row": 0 if flat else begin.pitch * step[0],
        "out_row": 0 if flat else end.pitch,
        "mask_row": end.geometry.width * end.lanes,
        "in_column": step[1] * end.lanes,
        "tile_count": len(cuts),
        "images": end.groups,
    }


def tiles(convolution: "Convolution", cuts: list[Cut]) -> Array:
    """Return where each tile lies in the input, the output, the residual and the mask, and its kernel."""
    source, target, step = convolution.source.field, convolution.target.field, convolution.step
    rest = convolution.residual.field if convolution.residual else None
    lanes, columns = target.lanes, target.geometry.width
    return np.array(
        [
            (
                y * step[0] * source.pitch + x * step[1] * lanes,
                y * target.pitch + x * lanes,
                y * rest.pitch + x * lanes if rest else 0,
                (y * columns + x) * lanes,
                variant.number,
            )
            for y, x, variant in cuts
        ],
        np.int32,
    )


def finish(convolution: "Convolution", binding: Binding) -> plan.Finish:
    low, high, function = clamp(convolution.activation)
    mask = convolution.target.field.mask if convolution.masked else None
    residual = convolution.residual
    made = plan.Finish(low=low, high=high, function=function)
    made.mask = binding.keep(mask) if mask is not None else None
    if residual:
        field = residual.field
        made.residual = binding.address(residual.buffer) + 4 * field.origin
        made.residual_image, made.residual_plane, made.residual_row = field.image, field.plane, field.pitch
    return made


def clamp(activation: Activation | None) -> tuple[float, float, int]:
    """Return the bounds of an activation that is a clamp, and the number of one that is not."""
    name = activation.name if activation else ""
    if name == "relu":
        return 0.0, float("inf"), 0
    if name == "relu6":
        return 0.0, 6.0, 0
    return -float("inf"), float("inf"), plan.FUNCTIONS.index(name)


def usual_bounds(convolution: "Convolution", config: Config, cuts: list[Cut]) -> list[int]:
    """Return where groups of outputs begin: enough tasks for the threads, weights that stay in the second cache."""
    outputs, threads = len(convolution.weight), convolution.threads
    jobs = len(cuts) * convolution.target.field.groups
    parts = -(-outputs // config.outputs_per_group)
    if threads > 1:
        parts = max(parts, -(-4 * threads // jobs))
    if jobs > 1:
        parts = max(parts, -(-weight_bytes(convolution, config) // SECOND_CACHE))
    parts = max(1, min(parts, outputs // 4))
    bundle = cuts[0].variant.outputs
    edges = [min(outputs, round(outputs * i / parts / bundle) * bundle) for i in range(parts)]
    return sorted({*edges, outputs})


def is_by_place(convolution: "Convolution", config: Config, cuts: list[Cut]) -> bool:
    """Whether tasks are numbered tile by tile: where all weights stay in the cache; else group by group."""
    return convolution.threads > 1 and len(cuts) > 1 and weight_bytes(convolution, config) <= SECOND_CACHE


def weight_bytes(convolution: "Convolution", config: Config) -> int:
    return 8 * len(convolution.nonzeros.weight) if config.is_sparse else 4 * convolution.weight.size


def scratch(convolution: "Convolution", config: Config) -> int:
    """Return how many floats of sums wait between blocks, or to be transposed."""
    if config.kernel == LANEWISE:
        return convolution.kernels.lanes * convolution.cuts(config)[0].variant.outputs
    if config.channels_per_block >= convolution.nonzeros.channels:
        return 0
    largest = max(cut.variant.vectors for cut in convolution.cuts(config))
    return (len(convolution.weight) + MOST_OUTPUTS) * largest * convolution.kernels.lanes
