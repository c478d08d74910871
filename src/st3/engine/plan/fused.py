"""Two steps as one operation, whose intermediate value stays in the cache.

A chain is a convolution and a channel-wise step (depthwise convolution or pooling), a few channels at a time. A
tilewise pair is two 1x1 convolutions, a tile at a time.
"""

from collections.abc import Collection
from ctypes import Structure
from dataclasses import dataclass, replace

import numpy as np

from .. import schema
from .assemble import Alternative, Assembly, Make
from .configs import Config, dense_candidates, dense_cost, sparse_candidates, sparse_configs, sparse_cost
from .convolution import NEVER_SPARSE, Convolution, make_structure, scratch
from .lanewise import lanewise_candidates
from .layout import NO_BORDER, Field, gather_index
from .moves import border_copies

GROUP_SIZES = (8, 16, 32, 64, 128, 256)  # channels at a time
MIDDLE_BYTES = 1024 * 1024  # largest intermediate value of a group
LARGE_VALUE_BYTES = 1024 * 1024  # a larger value between two convolutions leaves the cache


@dataclass(frozen=True, eq=False)
class Chain:
    """A convolution, then a depthwise convolution or a pooling, a few channels at a time.

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

    def alternatives(self) -> list[Alternative]:
        after, cost_after = self.second.best_config()
        second_kernel = after.kernel if after else "pool"
        found = [
            Alternative(
                config.label.replace(" ", " chain ", 1),
                cost + cost_after,
                ChainMaker(self, config, after),
                self.sum_floats(config) + config.outputs_per_group * self.floats_per_channel,
                second_kernel,
            )
            for cost, config in self.first_configs()
        ]
        return sorted(found, key=lambda each: each.cost)

    def first_configs(self) -> list[tuple[float, Config]]:
        """Return configs of the first part for each group size, with their estimated cycles."""
        first, found = self.first, []
        outputs, left = len(first.weight), first.density
        sizes = self.group_sizes()
        if left < NEVER_SPARSE:
            for tiles, config in sparse_configs(first):
                if config.outputs_per_group < outputs and config.channels_per_block < first.channels:
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
        images = self.first.target.field.groups
        return {size for size in sizes if outputs // size * images >= 2 * threads} or {min(sizes)}

    def fitting_sizes(self, sizes: Collection[int]) -> list[int]:
        """Return the sizes whose intermediate value fits the cache; the smallest if none does."""
        return [size for size in sizes if 4 * size * self.floats_per_channel <= MIDDLE_BYTES] or [min(sizes)]

    def sum_floats(self, config: Config) -> int:
        """Return the scratch floats in front of the intermediate value: sums between blocks."""
        return -(-scratch(self.first, config) // 1024) * 1024


@dataclass(frozen=True)
class ChainMaker:
    """Builds the structure of a chain."""

    chain: Chain
    config: Config
    after: Config | None

    def __call__(self, assembly: Assembly) -> list[tuple[Structure, int]]:
        chain, config = self.chain, self.config
        first, middle, moved = chain.first, chain.middle, chain.moved
        outputs = len(first.weight)
        step = config.outputs_per_group
        bounds = [*range(0, outputs, step), outputs]
        begin, _ = make_structure(first, assembly, config, bounds)
        end, _ = chain.second.make_in_groups(assembly, self.after, bounds)
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
            entries, shuffles, starts = border_copies(middle)
            border = schema.Border(
                entries=assembly.keep(entries),
                shuffles=assembly.keep(shuffles),
                entry_count=len(entries) // 3,
                shuffle_count=len(shuffles) // (2 * middle.lanes),
                starts=assembly.keep(starts),
                planes=1,
                parts=1,
            )
        sum_floats = chain.sum_floats(config)
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
            middle=sum_floats,
            plane=middle.plane,
            origin=middle.origin,
            moved=sum_floats + middle_floats if move else sum_floats,
            moved_plane=moved.plane,
            moved_origin=moved.origin,
            group_count=len(bounds) - 1,
            images=middle.groups,
        )
        return [(whole, (len(bounds) - 1) * middle.groups)]


@dataclass(frozen=True, eq=False)
class Pooling:
    """A pooling as the second part of a chain."""

    make: Make
    signature: str

    def best_config(self) -> tuple[None, float]:
        return None, 0.0

    def make_in_groups(
        self, assembly: Assembly, config: Config | None, bounds: list[int]
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
