"""Planes cut into tiles of vectors that fit the registers."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from .native import Variant


class Cut(NamedTuple):
    """A tile: its first vector and its kernel."""

    y: int
    x: int
    variant: Variant


class Shears:
    """The sizes of tile that have a kernel for one column step."""

    def __init__(self, variants: Iterable[Variant], step: int) -> None:
        known = [variant for variant in variants if variant.step == step]
        self.sizes = {(variant.rows, variant.columns): variant for variant in known}

    def cut(self, height: int, width: int, down: int, across: int) -> list[Cut] | None:
        """Cut a plane into `down` times `across` tiles of nearly equal size.

        None where a size has no kernel, or the tiles would take different numbers of outputs at a time.
        """
        ys = [height * i // down for i in range(down + 1)]
        xs = [width * i // across for i in range(across + 1)]
        cuts = []
        for top, bottom in itertools.pairwise(ys):
            for left, right in itertools.pairwise(xs):
                variant = self.sizes.get((bottom - top, right - left))
                if variant is None:
                    return None
                cuts.append(Cut(top, left, variant))
        return cuts if len({each.variant.outputs for each in cuts}) == 1 else None

    def all_cuts(self, height: int, width: int, least: int = 1) -> list[list[Cut]]:
        """Return the ways to cut a plane into tiles of one size, rests included; `least` vectors, where it has them."""
        ways = {
            (-(-height // rows), -(-width // columns))
            for rows, columns in self.sizes
            if rows <= height and columns <= width and rows * columns >= min(least, height * width)
        }
        found = [cuts for down, across in sorted(ways) if (cuts := self.cut(height, width, down, across))]
        return sorted(found, key=len) or [self.single(height, width)]

    def single(self, height: int, width: int) -> list[Cut]:
        """Cut into vectors: the way that always exists."""
        return [Cut(y, x, self.sizes[1, 1]) for y in range(height) for x in range(width)]
