"""How a convolution is divided: planes into tiles whose sums fit the registers, channels into blocks and groups.

A config is one such way. Candidates come with estimated costs; only the best estimates are measured.
"""

import itertools
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..native import Kernels, Variant

if TYPE_CHECKING:
    from .convolution import Convolution


class Tile(NamedTuple):
    """The first vector of a tile, and the kernel for its size."""

    y: int
    x: int
    variant: Variant


class TileSizes:
    """The tile sizes that have a kernel for one column step."""

    def __init__(self, variants: Iterable[Variant], step: int) -> None:
        known = [variant for variant in variants if variant.step == step]
        self.sizes = {(variant.rows, variant.columns): variant for variant in known}
        self.tilings_made: dict[tuple[int, ...], list[Tile] | None] = {}  # layers of a network are much alike

    def tiling(self, height: int, width: int, down: int, across: int) -> list[Tile] | None:
        """Divide a plane into `down` times `across` tiles of nearly equal size.

        None if a size has no kernel, or the kernels compute different numbers of outputs at a time.
        """
        key = (height, width, down, across)
        if key not in self.tilings_made:
            self.tilings_made[key] = self._divide(*key)
        return self.tilings_made[key]

    def _divide(self, height: int, width: int, down: int, across: int) -> list[Tile] | None:
        ys = [height * i // down for i in range(down + 1)]
        xs = [width * i // across for i in range(across + 1)]
        tiles = []
        for top, bottom in itertools.pairwise(ys):
            for left, right in itertools.pairwise(xs):
                variant = self.sizes.get((bottom - top, right - left))
                if variant is None:
                    return None
                tiles.append(Tile(top, left, variant))
        return tiles if len({each.variant.outputs for each in tiles}) == 1 else None

    def tilings(self, height: int, width: int, least: int = 1) -> list[list[Tile]]:
        """Return the ways to divide a plane into tiles of nearly one size, of `least` vectors or more if possible."""
        ways = {
            (-(-height // rows), -(-width // columns))
            for rows, columns in self.sizes
            if rows <= height and columns <= width and rows * columns >= min(least, height * width)
        }
        found = [
            tiles for down, across in sorted(ways) if (tiles := self.tiling(height, width, down, across))
        ]
        return sorted(found, key=len) or [self.single_vectors(height, width)]

    def single_vectors(self, height: int, width: int) -> list[Tile]:
        """Return tiles of one vector each, which always exist."""
        return [Tile(y, x, self.sizes[1, 1]) for y in range(height) for x in range(width)]


@lru_cache(maxsize=16)
def tile_sizes(kernels: Kernels, kernel: str, step: int) -> TileSizes:
    return TileSizes(kernels.variants[kernel], step)


class Config(NamedTuple):
    """How a convolution is computed: tiles per plane, input channels per block, outputs per group, kernel."""

    down: int  # tiles from top to bottom
    across: int  # tiles from left to right
    channels_per_block: int
    outputs_per_group: int
    kernel: str = "sparse"  # or "quantised", "dense", "lanewise", "depthwise"

    @property
    def has_lists(self) -> bool:
        return self.kernel in ("sparse", QUANTISED)

    @property
    def outputs_together(self) -> int:
        """The outputs that a group must not divide."""
        return 4 if self.kernel == QUANTISED else 1

    @property
    def label(self) -> str:
        return f"{self.kernel} {tuple(self[:-1])}"


QUANTISED = "quantised"
SUM_BYTES = (8192, 16384)  # of the L1 cache, for the sums of a group
BLOCK_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # blocks of input channels
INPUT_BYTES = 28 * 1024  # of the L1 cache, for the inputs of a dense block


def sparse_candidates(convolution: "Convolution", kernel: str = "sparse") -> list[tuple[float, Config]]:
    """Return the configs of kernels with lists with their estimated cycles, cheapest first."""
    found = sparse_configs(convolution, kernel)
    return sorted((sparse_cost(convolution, tiles, config), config) for tiles, config in found)


def sparse_configs(convolution: "Convolution", kernel: str = "sparse") -> Iterator[tuple[list[Tile], Config]]:
    channels, outputs = convolution.channels, len(convolution.weight)
    line = 4 * convolution.kernels.lanes
    seen = set()
    for tiles in convolution.tile_sizes(kernel).tilings(*convolution.plane, least=2):
        vectors = max(tile.variant.vectors for tile in tiles)
        for blocks in BLOCK_COUNTS:
            if blocks > max(1, channels // 4) or (blocks > 1 and convolution.groups > 1):
                break
            sizes = {outputs}
            if convolution.groups > 1:
                sizes = {8}  # few outputs share their inputs
            elif blocks > 1 or kernel == QUANTISED:
                sizes |= {max(16, bytes // (line * vectors) // 8 * 8) for bytes in SUM_BYTES}
            for size in sizes:
                config = Config(*tile_counts(tiles), -(-channels // blocks), min(size, outputs), kernel)
                if config not in seen:
                    seen.add(config)
                    yield tiles, config


def tile_counts(tiles: list[Tile]) -> tuple[int, int]:
    """Return the number of tiles from top to bottom and from left to right."""
    return len({tile.y for tile in tiles}), len({tile.x for tile in tiles})


def sparse_cost(convolution: "Convolution", tiles: list[Tile], config: Config) -> float:
    """Estimate the cycles of all tiles.

    Two multiply-adds per cycle from the L1 cache, one from the L2 cache. The constants were fitted to the measured
    times of some thousand configs of ResNet-50 and MobileNet layers. On these timings the fastest of the eight best
    estimates was on average 2 % slower than the fastest of all.
    """
    outputs = len(convolution.weight)
    blocks = -(-convolution.channels // config.channels_per_block)
    groups = -(-outputs // config.outputs_per_group)
    per_output = convolution.nonzero_count / outputs
    line = 4 * convolution.kernels.lanes
    total = 0.0
    for tile in tiles:
        vectors, seen = tile.variant.vectors, input_vectors(convolution, tile)
        foot = seen * line * config.channels_per_block
        stores_sums = blocks > 1 or config.kernel == QUANTISED
        sums_foot = vectors * line * config.outputs_per_group if stores_sums else 0
        near = foot + min(sums_foot, 10 * 1024)
        missing = min(1.0, max(0.0, (near - 30 * 1024) / (104 * 1024)))
        per_item = vectors / 2 + 0.13 + 0.55 * missing * vectors
        sums = (blocks - (config.kernel != QUANTISED)) * (1.8 * vectors + 6.4 / tile.variant.outputs)
        ends = 4 * vectors + 17 / tile.variant.outputs
        reads = 0.5 * groups * seen * convolution.channels * (1 - missing) * min(1.0, per_output / 16)
        total += outputs * (per_output * per_item + sums + ends) + reads
    return total * convolution.target.field.groups


def input_vectors(convolution: "Convolution", tile: Tile) -> int:
    """Return the number of vectors that a tile reads from each input channel."""
    if convolution.is_flat:
        return tile.variant.vectors
    high, wide = map(int, convolution.weight.shape[2:])
    step, dilation = convolution.step, convolution.dilation
    reach_y = (tile.variant.rows - 1) * step[0] + (high - 1) * dilation[0] + 1
    reach_x = (tile.variant.columns - 1) * step[1] + (wide - 1) * dilation[1] + 1
    return reach_y * reach_x


def dense_candidates(convolution: "Convolution") -> list[tuple[float, Config]]:
    """Return the configs of dense kernels with their estimated cycles, cheapest first; none for grouped convolutions.

    Blocks are as large as the L1 cache allows, so that sums are seldom stored in between.
    """
    if convolution.groups > 1:
        return []
    channels, outputs = convolution.channels, len(convolution.weight)
    found = []
    for tiles in convolution.tile_sizes("dense").tilings(*convolution.plane):
        per_channel = 4 * convolution.kernels.lanes * max(input_vectors(convolution, tile) for tile in tiles)
        fitting = max(1, INPUT_BYTES // per_channel)
        blocks = -(-channels // fitting)
        config = Config(*tile_counts(tiles), -(-channels // blocks), outputs, "dense")
        found.append((dense_cost(convolution, tiles, config), config))
    return sorted(found)


def dense_cost(convolution: "Convolution", tiles: list[Tile], config: Config) -> float:
    """Estimate the cycles of all tiles, on the scale of `sparse_cost`: multiply-adds, loads, stored sums."""
    outputs, taps = len(convolution.weight), convolution.weight[0].size
    blocks = -(-convolution.channels // config.channels_per_block)
    total = 0.0
    for tile in tiles:
        vectors, bundle = tile.variant.vectors, tile.variant.outputs
        bundles = outputs / config.outputs_per_group * -(-config.outputs_per_group // bundle)
        per_tap = 0.3 * vectors * bundle + 0.2 * (vectors + bundle + 1)
        sums = (blocks - 1) * 1.2 * vectors * bundle
        total += bundles * (taps * per_tap + sums + 4 * vectors * bundle)
    return total * convolution.target.field.groups


def depthwise_candidates(convolution: "Convolution") -> list[tuple[float, Config]]:
    """Return the configs of the depthwise kernel with their estimated cycles, cheapest first."""
    if not convolution.is_depthwise:
        return []
    channels, found = len(convolution.weight), []
    for tiles in convolution.tile_sizes("depthwise").tilings(*convolution.plane):
        products = 4.5 * sum(tile.variant.vectors for tile in tiles)
        loads = 0.5 * sum(input_vectors(convolution, tile) for tile in tiles)
        ends = sum(2.9 * tile.variant.vectors + 15 for tile in tiles)
        cost = channels * convolution.target.field.groups * (max(products, loads) + 0.2 * loads + ends)
        found.append((cost, Config(*tile_counts(tiles), channels, channels, "depthwise")))
    return sorted(found)
