"""The sensible ways to cut a convolution, and a guess of what each costs: only the best guesses are measured."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .config import Config
from .tiles import Cut

if TYPE_CHECKING:
    from .convolution import Convolution

SUMS = (8192, 16384)  # bytes of the first cache that the sums of a group may fill
BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # of input channels
INPUTS = 28 * 1024  # bytes of the first cache that the inputs of a dense block may fill


def sparse_guesses(convolution: "Convolution") -> list[tuple[float, Config]]:
    """Return all sensible configs of sparse kernels with their guessed costs in cycles, cheapest first."""
    found = sparse_configs(convolution)
    return sorted((sparse_cost(convolution, cuts, config), config) for cuts, config in found)


def sparse_configs(convolution: "Convolution") -> Iterator[tuple[list[Cut], Config]]:
    channels, outputs = convolution.nonzeros.channels, len(convolution.weight)
    line = 4 * convolution.kernels.lanes
    seen = set()
    for cuts in convolution.shears("sparse").all_cuts(*convolution.plane, least=2):
        vectors = max(cut.variant.vectors for cut in cuts)
        for blocks in BLOCKS:
            if blocks > max(1, channels // 4) or (blocks > 1 and convolution.groups > 1):
                break
            sizes = {outputs}
            if convolution.groups > 1:
                sizes = {8}  # few outputs read the same input: go plane by plane
            elif blocks > 1:
                sizes |= {max(16, bytes // (line * vectors) // 8 * 8) for bytes in SUMS}
            for size in sizes:
                config = Config(*parts(cuts), -(-channels // blocks), min(size, outputs))
                if config not in seen:
                    seen.add(config)
                    yield cuts, config


def parts(cuts: list[Cut]) -> tuple[int, int]:
    """Return into how many tiles a plane is cut from top to bottom and from left to right."""
    return len({cut.y for cut in cuts}), len({cut.x for cut in cuts})


def sparse_cost(convolution: "Convolution", cuts: list[Cut], config: Config) -> float:
    """Guess the cycles of all tiles.

    Two multiply-adds per cycle from the first cache, one from the second; the constants were fitted to the
    measured times of some thousand configs of ResNet-50 and MobileNet layers. On these same timings the fastest of the
    best eight guesses was on average 2 % slower than the fastest of all.
    """
    outputs = len(convolution.weight)
    blocks = -(-convolution.nonzeros.channels // config.channels_per_block)
    groups = -(-outputs // config.outputs_per_group)
    per_output = len(convolution.nonzeros.weight) / outputs
    line = 4 * convolution.kernels.lanes
    total = 0.0
    for cut in cuts:
        vectors, seen = cut.variant.vectors, inputs_of(convolution, cut)
        foot = seen * line * config.channels_per_block
        sums_foot = vectors * line * config.outputs_per_group if blocks > 1 else 0
        near = foot + min(sums_foot, 10 * 1024)
        missing = min(1.0, max(0.0, (near - 30 * 1024) / (104 * 1024)))
        per_item = vectors / 2 + 0.13 + 0.55 * missing * vectors
        sums = (blocks - 1) * (1.8 * vectors + 6.4 / cut.variant.outputs)
        ends = 4 * vectors + 17 / cut.variant.outputs
        reads = (
            0.5 * groups * seen * convolution.nonzeros.channels * (1 - missing) * min(1.0, per_output / 16)
        )
        total += outputs * (per_output * per_item + sums + ends) + reads
    return total * convolution.target.field.groups


def inputs_of(convolution: "Convolution", cut: Cut) -> int:
    """Return how many vectors of each input channel a tile reads."""
    if convolution.is_flat:
        return cut.variant.vectors
    high, wide = map(int, convolution.weight.shape[2:])
    step, dilation = convolution.step, convolution.dilation
    reach_y = (cut.variant.rows - 1) * step[0] + (high - 1) * dilation[0] + 1
    reach_x = (cut.variant.columns - 1) * step[1] + (wide - 1) * dilation[1] + 1
    return reach_y * reach_x


def dense_guesses(convolution: "Convolution") -> list[tuple[float, Config]]:
    """Return the configs of dense kernels, cheapest first; none for grouped convolutions.

    Blocks as large as the first cache takes: sums wait seldom, and inputs are loaded for several outputs at once.
    """
    if convolution.groups > 1:
        return []
    channels, outputs = convolution.nonzeros.channels, len(convolution.weight)
    found = []
    for cuts in convolution.shears("dense").all_cuts(*convolution.plane):
        per_channel = 4 * convolution.kernels.lanes * max(inputs_of(convolution, cut) for cut in cuts)
        fitting = max(1, INPUTS // per_channel)
        blocks = -(-channels // fitting)
        config = Config(*parts(cuts), -(-channels // blocks), outputs, "dense")
        found.append((dense_cost(convolution, cuts, config), config))
    return sorted(found)


def dense_cost(convolution: "Convolution", cuts: list[Cut], config: Config) -> float:
    """Guess the cycles of all tiles, in the scale of `sparse_cost`: multiply-adds, loads, and sums that wait."""
    outputs, taps = len(convolution.weight), convolution.weight[0].size
    blocks = -(-convolution.nonzeros.channels // config.channels_per_block)
    total = 0.0
    for cut in cuts:
        vectors, together = cut.variant.vectors, cut.variant.outputs
        bundles = outputs / config.outputs_per_group * -(-config.outputs_per_group // together)
        per_tap = 0.3 * vectors * together + 0.2 * (vectors + together + 1)
        sums = (blocks - 1) * 1.2 * vectors * together
        total += bundles * (taps * per_tap + sums + 4 * vectors * together)
    return total * convolution.target.field.groups


def depthwise_guesses(convolution: "Convolution") -> list[tuple[float, Config]]:
    """Return the configs of the kernel for depthwise convolutions, cheapest first."""
    if not convolution.is_depthwise:
        return []
    channels, found = len(convolution.weight), []
    for cuts in convolution.shears("depthwise").all_cuts(*convolution.plane):
        products = 4.5 * sum(cut.variant.vectors for cut in cuts)
        loads = 0.5 * sum(inputs_of(convolution, cut) for cut in cuts)
        ends = sum(2.9 * cut.variant.vectors + 15 for cut in cuts)
        cost = channels * convolution.target.field.groups * (max(products, loads) + 0.2 * loads + ends)
        found.append((cost, Config(*parts(cuts), channels, channels, "depthwise")))
    return sorted(found)
