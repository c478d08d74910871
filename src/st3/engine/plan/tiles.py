"""How a convolution is divided: planes into tiles whose sums fit the registers, channels into blocks and groups."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from ..native import Variant


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

    def tiling(self, height: int, width: int, down: int, across: int) -> list[Tile] | None:
        """Divide a plane into `down` times `across` tiles of nearly equal size.

        None if a size has no kernel, or the kernels compute different numbers of outputs at a time.
        """
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


class Config(NamedTuple):
    """How a convolution is computed: tiles per plane, input channels per block, outputs per group, kernel."""

    down: int  # tiles from top to bottom
    across: int  # tiles from left to right
    channels_per_block: int
    outputs_per_group: int
    kernel: str = "sparse"  # or "dense", "lanewise", "depthwise"

    @property
    def is_sparse(self) -> bool:
        return self.kernel == "sparse"

    @property
    def label(self) -> str:
        return f"{self.kernel} {tuple(self[:-1])}"
