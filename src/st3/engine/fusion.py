"""Two steps as one: what lies between them does not leave the cache."""

from ctypes import Structure
from dataclasses import dataclass, replace

import numpy as np

from . import native
from .config import Alternative, Config
from .convolution import Convolution
from .guesses import dense_cost, dense_guesses, sparse_configs, sparse_cost, sparse_guesses
from .layout import NO_BORDER, Field, border_copies, gather_index
from .planned import Binding, Make
from .structures import scratch, structure

GROUPS = (8, 16, 32, 64, 128, 256)  # channels at a time
MIDDLE = 1024 * 1024  # bytes that may lie between the two
FRONT = 1024 * 1024  # bytes of a value from which its next reader should follow at once


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
        return f"{self.first.signature} > {self.second.signature}"

    def alternatives(self) -> list[Alternative]:
        after, cost_after = self.second.own_config()
        found = []
        for cost, config in self.first_configs():
            size = config.outputs_per_group
            bytes = 4 * size * self.planes
            if bytes > MIDDLE and size > GROUPS[0]:
                continue
            label = config.label.replace(" ", " chain ", 1)
            found.append(
                Alternative(label, cost + cost_after, self.maker(config, after), self.scratch(config, after))
            )
        return sorted(found, key=lambda each: each.cost)

    def first_configs(self) -> list[tuple[float, Config]]:
        first = self.first
        outputs = len(first.weight)
        found = []
        sizes = {min(size, outputs) for size in GROUPS}
        if first.threads > 1:
            sizes = {
                size for size in sizes if outputs // size * first.target.field.groups >= 2 * first.threads
            } or {min(GROUPS[0], outputs)}
        if len(first.nonzeros.weight) < 0.7 * first.weight.size:
            for cuts, config in sparse_configs(first):
                if config.outputs_per_group < outputs and config.channels_per_block < first.nonzeros.channels:
                    continue  # sizes of groups are chosen here
                for size in sizes:
                    mine = config._replace(outputs_per_group=size)
                    found.append((sparse_cost(first, cuts, mine), mine))
        if len(first.nonzeros.weight) > 0.4 * first.weight.size:
            for _, config in dense_guesses(first)[:4]:
                cuts = first.cuts(config)
                together = cuts[0].variant.outputs
                for size in {min(outputs, -(-size // together) * together) for size in sizes}:
                    mine = config._replace(outputs_per_group=size)
                    found.append((dense_cost(first, cuts, mine), mine))
        return found

    def scratch(self, config: Config, after: Config | None) -> int:
        return self.sums(config, after) + config.outputs_per_group * self.planes

    def sums(self, config: Config, after: Config | None) -> int:
        largest = scratch(self.first, config)
        return -(-largest // 1024) * 1024

    def maker(self, config: Config, after: Config | None) -> "Maker":
        return Maker(self, config, after)


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
            move = native.Move(
                index=binding.keep(index),
                vectors=len(index) // moved.lanes,
                last_lanes=moved.lanes,
                fill=chain.fill,
            )
        elif middle.border != NO_BORDER:
            entries, shuffles = border_copies(middle)
            halo = native.Halo(
                entries=binding.keep(entries), shuffles=binding.keep(shuffles), entry_count=len(entries) // 3
            )
        sums = chain.sums(config, self.after)
        planes = step * middle.plane

        def held(kind: type[Structure]) -> int | None:
            return binding.hold(end) if isinstance(end, kind) else None

        whole = native.Chain(
            sparse=binding.hold(begin) if config.is_sparse else None,
            dense=None if config.is_sparse else binding.hold(begin),
            halo=binding.hold(halo) if halo else None,
            move=binding.hold(move) if move else None,
            next=held(native.Sparse),
            depthwise=held(native.Depthwise),
            window=held(native.Window),
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


@dataclass(frozen=True, eq=False)
class Tilewise:
    """Two 1×1 convolutions, tile by tile: what the first writes, the second reads from the cache."""

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
        for cost, config in sparse_guesses(second):
            best.setdefault((config.down, config.across), (cost, config))
        for cost, config in sparse_guesses(first):
            key = (config.down, config.across)
            if key not in best:
                continue
            cost_after, after = best[key]
            if first.cuts(config)[0].variant.outputs != second.cuts(after)[0].variant.outputs:
                continue
            label = f"sparse tilewise {tuple(config)} {tuple(after)}"
            floats = max(scratch(first, config), scratch(second, after))
            found.append(
                Alternative(label, cost + cost_after, self.maker(first, config, second, after), floats)
            )
        apart = self.apart()
        return sorted(found[:6], key=lambda each: each.cost) + apart

    def apart(self) -> list[Alternative]:
        """Return one after the other, as the alternative."""
        pairs = zip(self.first.alternatives()[:2], self.second.alternatives()[:2], strict=False)
        return [
            Alternative(
                f"sparse apart {a.label} {b.label}",
                a.cost + b.cost,
                lambda binding, a=a, b=b: [*a.make(binding), *b.make(binding)],  # type: ignore[misc]
                max(a.scratch, b.scratch),
            )
            for a, b in pairs
        ]

    def maker(self, first: Convolution, config: Config, second: Convolution, after: Config) -> "PairMaker":
        return PairMaker(first, config, second, after)


@dataclass(frozen=True)
class PairMaker:
    first: Convolution
    config: Config
    second: Convolution
    after: Config

    def __call__(self, binding: Binding) -> list[tuple[Structure, int]]:
        parts = []
        for part, config in ((self.first, self.config), (self.second, self.after)):
            outputs = len(part.weight)
            size = config.outputs_per_group
            bounds = [*range(0, outputs, size), outputs]
            made, _ = structure(part, binding, config, bounds)
            parts.append(binding.hold(made))
        tiles = len(self.first.cuts(self.config))
        return [(native.Tilewise(first=parts[0], second=parts[1]), tiles * self.first.target.field.groups)]
