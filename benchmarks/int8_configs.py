"""The ways to compute a layer of the int8 kernel, for int8_kernel.py to measure."""

import ctypes
from dataclasses import dataclass

import numpy as np

from st3.engine.native import Variant
from st3.engine.plan.configs import Tile, TileSizes

BLOCK_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)  # blocks of input channels
SUM_BYTES = (4096, 8192, 16384)  # of the L1 cache, for the sums of a group of outputs
LEAST_VECTORS = 6  # of a tile, if the picture has as many


@dataclass(frozen=True)
class Config:
    """How a layer is computed; a plane of the kernel has four channels."""

    tiles: tuple[Tile, ...]
    planes_per_block: int
    outputs_per_group: int

    @property
    def vectors(self) -> int:
        """Those of the largest tile."""
        return max(tile.variant.vectors for tile in self.tiles)

    @property
    def label(self) -> str:
        sizes = sorted({(tile.variant.rows, tile.variant.columns) for tile in self.tiles})
        channels, outputs = 4 * self.planes_per_block, self.outputs_per_group
        return f"tiles {sizes}, {channels} channels, {outputs} outputs at a time"


def known_tiles(library: ctypes.CDLL) -> TileSizes:
    """Return the tile sizes that the library has kernels for."""
    table = (ctypes.c_int32 * 3 * ctypes.c_int32.in_dll(library, "tile_count").value).in_dll(
        library, "tile_sizes"
    )
    rows = np.ctypeslib.as_array(table).reshape(-1, 3).tolist()
    return TileSizes([Variant(high, wide, 1, outputs, i) for i, (high, wide, outputs) in enumerate(rows)], 1)


def configs(sizes: TileSizes, plane: tuple[int, int], inputs: int, outputs: int) -> list[Config]:
    """Return the candidates for a layer on planes of that many rows and columns of vectors."""
    found = {}
    for tiles in sizes.tilings(*plane, least=LEAST_VECTORS):
        most = max(tile.variant.vectors for tile in tiles)
        for blocks in BLOCK_COUNTS:
            if blocks > max(1, inputs // 16):
                break
            for size in {max(8, space // (64 * most) // 8 * 8) for space in SUM_BYTES}:
                config = Config(tuple(tiles), -(-(inputs // 4) // blocks), min(size, outputs))
                found[config.label] = config
    return [*found.values()]
