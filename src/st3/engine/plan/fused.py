"""Two steps as one operation, whose intermediate value stays in the cache.

A chain is a convolution and a channel-wise step (depthwise convolution or pooling), a few channels at a time. A
tilewise pair is two 1x1 convolutions, a tile at a time.
"""

import itertools
from collections.abc import Collection
from ctypes import Structure
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .. import schema
from ..program import Windows
from .assemble import Alternative, Assembly, Make
from .configs import (
    Config,
    Tile,
    dense_candidates,
    dense_cost,
    sparse_candidates,
    sparse_configs,
    sparse_cost,
)
from .convolution import Convolution, make_structure, scratch
from .lanewise import lanewise_candidates
from .layout import NO_BORDER, Field, gather_index, row_parts
from .moves import border_copies
from .values import FieldArray

GROUP_SIZES = (8, 16, 32, 64, 128, 256)  # channels at a time
MIDDLE_BYTES = 1024 * 1024  # largest intermediate value of a group
MAX_HALO = 1.2  # rows that parts of a plane compute together, over those that it has
LARGE_VALUE_BYTES = 1024 * 1024  # a larger value between two convolutions leaves the cache


@dataclass(frozen=True, eq=False)
class Chain:
    """A convolution, then a depthwise convolution or a pooling, a few channels at a time.

    Threads divide the rows of one image if these are many: each then reads what it has written itself in the layer
    before. Rows of the intermediate value that two threads need are computed by both.

    `middle` is the field between them; `moved` is the same value in the layout that the second step reads.
    """

    first: Convolution
    second: "Convolution | Pooling"
    moved: Field
    fill: float = 0.0
    subsample: tuple[int, int] = (1, 1)

    @property
    def middle(self) -> Field:
        return self.first.target.field

    @property
    def floats_per_channel(self) -> int:
        """Floats of the intermediate value per channel."""
        return self.middle.plane + (self.moved.plane if self.moved is not self.middle else 0)

    @property
    def signature(self) -> str:
        between = "" if self.moved is self.middle else f" moved, filled with {self.fill}"
        return f"{self.first.signature} >{between} {self.second.signature}"

    @cached_property
    def parts(self) -> int:
        """The parts of a plane, each a few rows, that are computed apart from each other."""
        target, height = self.second.target.field, self.middle.geometry.height
        parts = row_parts(target, self.first.threads)
        if parts == 1 or self.moved is not self.middle or self.second.best_config_in_parts(parts) is None:
            return 1
        return parts if sum(map(len, self.rows_of(parts))) <= MAX_HALO * height else 1

    def rows_read(self, parts: int) -> list[range]:
        """Return the rows of the intermediate value that each part reads; some may lie in other lanes' patches."""
        high = self.second.target.field.geometry.height
        return [self.second.rows_read(high * i // parts, high * (i + 1) // parts) for i in range(parts)]

    def rows_of(self, parts: int) -> list[list[int]]:
        """Return the rows that each part computes: those that it reads, in whichever lane they are."""
        height, is_one = self.middle.geometry.height, self.middle.geometry.grid.rows == 1
        return [
            sorted({row % height for row in rows if not is_one or 0 <= row < height})
            for rows in self.rows_read(parts)
        ]

    def tiles_of(self, config: Config) -> list[list[Tile]]:
        """Return the first convolution's tiles for each part; for the whole plane if a size has no kernel."""
        whole = self.first.tiles(config)
        if self.parts == 1 or config.kernel not in ("sparse", "dense"):
            return [whole]
        height, width = self.first.plane
        sizes, high = self.first.tile_sizes(config.kernel), -(-height // config.down)
        found = []
        for rows in self.rows_of(self.parts):
            tiles: list[Tile] = []
            for _, run in itertools.groupby(enumerate(rows), key=lambda each: each[1] - each[0]):
                ys = [y for _, y in run]
                # A single row from another lane may need wider tiles to be computed with as many outputs at a time.
                ways = (
                    sizes.tiling(len(ys), width, -(-len(ys) // high), across)
                    for across in (config.across, *range(1, width + 1))
                )
                same = (way for way in ways if way and way[0].variant.outputs == whole[0].variant.outputs)
                own = next(same, None)
                if own is None:
                    return [whole]
                tiles += [tile._replace(y=tile.y + ys[0]) for tile in own]
            found.append(tiles)
        return found

    def alternatives(self) -> list[Alternative]:
        found = []
        whole = self.second.best_config()
        seconds = {1: whole, self.parts: self.second.best_config_in_parts(self.parts) or whole}
        for cost, config in self.first_configs():
            tiles = self.tiles_of(config)
            parts = len(tiles)
            after, cost_after = seconds[parts]
            label = config.label.replace(" ", " chain ", 1)
            made = Alternative(
                label if parts == 1 else f"{label} in {parts} parts",
                cost + cost_after,
                ChainMaker(self, config, after, tiles),
                self.sum_floats(config, tiles) + config.outputs_per_group * self.floats_per_channel,
                after.kernel if after else "pool",
            )
            found.append((parts < self.parts, made))
        # Those in parts, if there are any: when they are measured alone, nobody has written what they read.
        fewest = min(is_whole for is_whole, _ in found)
        return sorted((each for is_whole, each in found if is_whole == fewest), key=lambda each: each.cost)

    def first_configs(self) -> list[tuple[float, Config]]:
        """Return configs of the first part for each group size, with their estimated cycles."""
        first, found = self.first, []
        outputs, left = len(first.weight), len(first.nonzeros.weight) / first.weight.size
        sizes = self.group_sizes()
        if left < 0.7:
            for tiles, config in sparse_configs(first):
                if config.outputs_per_group < outputs and config.channels_per_block < first.nonzeros.channels:
                    continue  # group sizes are chosen below
                for size in self.fitting_sizes(sizes):
                    mine = config._replace(outputs_per_group=size)
                    found.append((sparse_cost(first, tiles, mine), mine))
        if left > 0.4:
            for cost, config in [*dense_candidates(first)[:4], *lanewise_candidates(first)]:
                tiles = first.tiles(config)
                bundle = tiles[0].variant.outputs
                whole = {min(outputs, -(-size // bundle) * bundle) for size in sizes}
                for size in self.fitting_sizes(whole):
                    mine = config._replace(outputs_per_group=size)
                    found.append((dense_cost(first, tiles, mine) if config.kernel == "dense" else cost, mine))
        return found

    def group_sizes(self) -> set[int]:
        """Return the group sizes that leave every thread something to do."""
        outputs, threads = len(self.first.weight), self.first.threads
        sizes = {min(size, outputs) for size in GROUP_SIZES}
        if threads == 1:
            return sizes
        jobs = self.first.target.field.groups * self.parts
        return {size for size in sizes if outputs // size * jobs >= 2 * threads} or {min(sizes)}

    def fitting_sizes(self, sizes: Collection[int]) -> list[int]:
        """Return the sizes whose intermediate value fits the cache; the smallest if none does."""
        return [size for size in sizes if 4 * size * self.floats_per_channel <= MIDDLE_BYTES] or [min(sizes)]

    def sum_floats(self, config: Config, tiles: list[list[Tile]]) -> int:
        """Return the scratch floats in front of the intermediate value: sums between blocks."""
        return -(-scratch(self.first, config, list(itertools.chain(*tiles))) // 1024) * 1024


@dataclass(frozen=True)
class ChainMaker:
    """Builds the structure of a chain."""

    chain: Chain
    config: Config
    after: Config | None
    tiles: list[list[Tile]]  # of each part

    def __call__(self, assembly: Assembly) -> list[tuple[Structure, int]]:
        chain, config = self.chain, self.config
        first, middle, moved = chain.first, chain.middle, chain.moved
        outputs = len(first.weight)
        step = config.outputs_per_group
        bounds = [*range(0, outputs, step), outputs]
        tiles = list(itertools.chain(*self.tiles))
        parts = len(self.tiles)
        starts = np.cumsum([0, *map(len, self.tiles)]).astype(np.int32)
        begin, _ = make_structure(first, assembly, config, bounds, tiles)
        end, _ = chain.second.make_in_groups(assembly, self.after, bounds, parts)
        border = move = None
        if moved is not middle:
            index = gather_index(moved, middle, chain.subsample)
            move = schema.Move(
                index=assembly.keep(index),
                vectors=len(index) // moved.lanes,
                last_lanes=moved.lanes,
                fill=chain.fill,
            )
        elif middle.border != NO_BORDER:
            rows = chain.rows_read(parts) if parts > 1 else ()
            entries, shuffles, entry_starts = border_copies(middle, parts, rows)
            border = schema.Border(
                entries=assembly.keep(entries),
                shuffles=assembly.keep(shuffles),
                entry_count=len(entries) // 3,
                shuffle_count=len(shuffles) // (2 * middle.lanes),
                starts=assembly.keep(entry_starts),
                planes=1,
                parts=parts,
            )
        sum_floats = chain.sum_floats(config, self.tiles)
        middle_floats = step * middle.plane

        def hold_if(part: Structure, kind: type[Structure]) -> int | None:
            return assembly.hold(part) if isinstance(part, kind) else None

        whole = schema.Chain(
            sparse=hold_if(begin, schema.Sparse),
            dense=hold_if(begin, schema.Dense),
            lanewise=hold_if(begin, schema.Lanewise),
            border=assembly.hold(border) if border else None,
            move=assembly.hold(move) if move else None,
            next=hold_if(end, schema.Sparse),
            depthwise=hold_if(end, schema.Depthwise),
            window=hold_if(end, schema.Window),
            bounds=assembly.keep(np.array(bounds, np.int32)),
            starts=assembly.keep(starts),
            middle=sum_floats,
            plane=middle.plane,
            origin=middle.origin,
            moved=sum_floats + middle_floats if move else sum_floats,
            moved_plane=moved.plane,
            moved_origin=moved.origin,
            group_count=len(bounds) - 1,
            images=middle.groups,
            parts=parts,
        )
        return [(whole, (len(bounds) - 1) * middle.groups * parts)]


@dataclass(frozen=True, eq=False)
class Pooling:
    """A pooling as the second part of a chain."""

    make: Make
    signature: str
    target: FieldArray
    windows: Windows
    step: int  # rows of the source from one row of the target to the next

    def best_config(self) -> tuple[None, float]:
        return None, 0.0

    def best_config_in_parts(self, parts: int) -> tuple[None, float]:
        return None, 0.0

    def rows_read(self, first: int, end: int) -> range:
        """Return the rows of the source that some rows of the target read; they may lie outside a patch."""
        low = first * self.step - self.windows.padding[0]
        reach = (self.windows.kernel[0] - 1) * self.windows.dilation[0]
        return range(low, low + (end - first - 1) * self.step + reach + 1)

    def make_in_groups(
        self, assembly: Assembly, config: Config | None, bounds: list[int], parts: int
    ) -> tuple[Structure, int]:
        return self.make(assembly)


@dataclass(frozen=True, eq=False)
class Tilewise:
    """Two 1×1 convolutions, tile by tile or one after the other."""

    first: Convolution
    second: Convolution

    @property
    def signature(self) -> str:
        return f"{self.first.signature} & {self.second.signature}"

    def alternatives(self) -> list[Alternative]:
        flat = self.first.is_flat and self.second.is_flat
        first, second = replace(self.first, flat=flat), replace(self.second, flat=flat)
        found = []
        best: dict[tuple[int, int], tuple[float, Config]] = {}
        for cost, config in sparse_candidates(second):
            best.setdefault((config.down, config.across), (cost, config))
        for cost, config in sparse_candidates(first):
            key = (config.down, config.across)
            if key not in best:
                continue
            cost_after, after = best[key]
            if first.tiles(config)[0].variant.outputs != second.tiles(after)[0].variant.outputs:
                continue
            label = f"sparse tilewise {tuple(config)} {tuple(after)}"
            floats = max(scratch(first, config), scratch(second, after))
            found.append(
                Alternative(
                    label, cost + cost_after, TilewiseMaker(first, config, second, after), floats, "sparse"
                )
            )
        separate = self.separate()
        return sorted(found[:6], key=lambda each: each.cost) + separate

    def separate(self) -> list[Alternative]:
        """Return the alternatives that compute one convolution after the other."""
        pairs = zip(self.first.alternatives()[:2], self.second.alternatives()[:2], strict=False)
        return [
            Alternative(
                f"sparse apart {a.label} {b.label}",
                a.cost + b.cost,
                lambda assembly, a=a, b=b: [*a.make(assembly), *b.make(assembly)],  # type: ignore[misc]
                max(a.scratch, b.scratch),
                b.kernel,
            )
            for a, b in pairs
        ]


@dataclass(frozen=True)
class TilewiseMaker:
    """Builds the structure of the pair."""

    first: Convolution
    config: Config
    second: Convolution
    after: Config

    def __call__(self, assembly: Assembly) -> list[tuple[Structure, int]]:
        parts = []
        for part, config in ((self.first, self.config), (self.second, self.after)):
            outputs = len(part.weight)
            size = config.outputs_per_group
            bounds = [*range(0, outputs, size), outputs]
            made, _ = make_structure(part, assembly, config, bounds)
            parts.append(assembly.hold(made))
        tiles = len(self.first.tiles(self.config))
        return [(schema.Tilewise(first=parts[0], second=parts[1]), tiles * self.first.target.field.groups)]
