"""A convolution and a step that takes each channel by itself, as one: what lies between does not leave the cache."""

from collections.abc import Collection
from ctypes import Structure
from dataclasses import dataclass

import numpy as np

from . import plan
from .config import Alternative, Config
from .convolution import Convolution
from .guesses import dense_cost, dense_guesses, sparse_configs, sparse_cost
from .lanewise import lanewise_guesses
from .layout import NO_BORDER, Field, border_copies, gather_index
from .planned import Binding, Make
from .structures import scratch, structure

GROUPS = (8, 16, 32, 64, 128, 256)  # channels at a time
MIDDLE = 1024 * 1024  # bytes that may lie between the two


@dataclass(frozen=True, eq=False)
class Chain:
    """A convolution, then a step that takes each channel by itself: a depthwise convolution or a pooling.

    A few channels at a time; `middle` is the field between them, `moved` the same in the layout the second one needs.
    """

    first: Convolution
    second: "Convolution | Pooling"
    moved: Field
    fill: float = 0.0
    every: tuple[int, int] = (1, 1)

    @property
    def middle(self) -> Field:
        return self.first.target.field

    @property
    def planes(self) -> int:
        """Floats that lie between the two for each channel."""
        return self.middle.plane + (self.moved.plane if self.moved is not self.middle else 0)

    @property
    def signature(self) -> str:
        between = "" if self.moved is self.middle else f" moved, filled with {self.fill}"
        return f"{self.first.signature} >{between} {self.second.signature}"

    def alternatives(self) -> list[Alternative]:
        after, cost_after = self.second.own_config()
        then = after.kernel if after else "pool"
        found = [
            Alternative(
                config.label.replace(" ", " chain ", 1),
                cost + cost_after,
                Maker(self, config, after),
                self.sums(config) + config.outputs_per_group * self.planes,
                then,
            )
            for cost, config in self.first_configs()
        ]
        return sorted(found, key=lambda each: each.cost)

    def first_configs(self) -> list[tuple[float, Config]]:
        """Return configs of the first part, one for each size of group, with their guessed costs."""
        first, found = self.first, []
        outputs, left = len(first.weight), len(first.nonzeros.weight) / first.weight.size
        sizes = self.sizes()
        if left < 0.7:
            for cuts, config in sparse_configs(first):
                if config.outputs_per_group < outputs and config.channels_per_block < first.nonzeros.channels:
                    continue  # sizes of groups are chosen here
                for size in self.fitting(sizes):
                    mine = config._replace(outputs_per_group=size)
                    found.append((sparse_cost(first, cuts, mine), mine))
        if left > 0.4:
            for cost, config in [*dense_guesses(first)[:4], *lanewise_guesses(first)]:
                cuts = first.cuts(config)
                together = cuts[0].variant.outputs
                whole = {min(outputs, -(-size // together) * together) for size in sizes}
                for size in self.fitting(whole):
                    mine = config._replace(outputs_per_group=size)
                    found.append((dense_cost(first, cuts, mine) if config.kernel == "dense" else cost, mine))
        return found

    def sizes(self) -> set[int]:
        """Return how many channels may be taken at a time, so that every thread has something to do."""
        outputs, threads = len(self.first.weight), self.first.threads
        sizes = {min(size, outputs) for size in GROUPS}
        if threads == 1:
            return sizes
        images = self.first.target.field.groups
        return {size for size in sizes if outputs // size * images >= 2 * threads} or {min(sizes)}

    def fitting(self, sizes: Collection[int]) -> list[int]:
        """Return the sizes whose channels stay in the cache between the two; the smallest in any case."""
        return [size for size in sizes if 4 * size * self.planes <= MIDDLE] or [min(sizes)]

    def sums(self, config: Config) -> int:
        """Return how many floats of scratch lie before the middle: sums that wait between blocks."""
        return -(-scratch(self.first, config) // 1024) * 1024


@dataclass(frozen=True)
class Maker:
    """Makes the structures of a chain."""

    chain: Chain
    config: Config
    after: Config | None

    def __call__(self, binding: Binding) -> list[tuple[Structure, int]]:
        chain, config = self.chain, self.config
        first, middle, moved = chain.first, chain.middle, chain.moved
        outputs = len(first.weight)
        step = config.outputs_per_group
        bounds = [*range(0, outputs, step), outputs]
        begin, _ = structure(first, binding, config, bounds)
        end, _ = chain.second.make_for(binding, self.after, bounds)
        halo = move = None
        if moved is not middle:
            index = gather_index(moved, middle, chain.every)
            move = plan.Move(
                index=binding.keep(index),
                vectors=len(index) // moved.lanes,
                last_lanes=moved.lanes,
                fill=chain.fill,
            )
        elif middle.border != NO_BORDER:
            entries, shuffles = border_copies(middle)
            halo = plan.Halo(
                entries=binding.keep(entries), shuffles=binding.keep(shuffles), entry_count=len(entries) // 3
            )
        sums = chain.sums(config)
        planes = step * middle.plane

        def held(part: Structure, kind: type[Structure]) -> int | None:
            return binding.hold(part) if isinstance(part, kind) else None

        whole = plan.Chain(
            sparse=held(begin, plan.Sparse),
            dense=held(begin, plan.Dense),
            lanewise=held(begin, plan.Lanewise),
            halo=binding.hold(halo) if halo else None,
            move=binding.hold(move) if move else None,
            next=held(end, plan.Sparse),
            depthwise=held(end, plan.Depthwise),
            window=held(end, plan.Window),
            bounds=binding.keep(np.array(bounds, np.int32)),
            middle=sums,
            plane=middle.plane,
            origin=middle.origin,
            moved=sums + planes if move else sums,
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

    def own_config(self) -> tuple[None, float]:
        return None, 0.0

    def make_for(self, binding: Binding, config: Config | None, bounds: list[int]) -> tuple[Structure, int]:
        return self.make(binding)
