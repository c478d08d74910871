"""A convolution's kernels: sparse with some tile and block, or dense; which is best is measured or guessed."""

import math
from collections.abc import Callable, Iterator
from ctypes import Structure
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from . import native
from .packing import NonZeros, nonzeros, pack, pack_dense, tap_bytes
from .planner import Binding
from .program import Activation, Floats
from .tiles import Cut, Shears
from .values import Laid

SUMS = (8192, 16384)  # bytes of the first cache that the sums of a group may fill
SECOND_CACHE = 1024 * 1024  # bytes of lists that a group of outputs may have


@dataclass(frozen=True)
class Alternative:
    """One way to compute a step: its name, a guess of its cycles, its structures, and floats of scratch per thread."""

    label: str
    cost: float
    make: Callable[[Binding], list[tuple[Structure, int]]]
    scratch: int

    @property
    def kernel(self) -> str:
        return self.label.split()[0]


class Config(NamedTuple):
    """How a convolution is computed: the plane's cut, input channels in a block (0: dense), outputs in a group."""

    down: int
    across: int
    channels_per_block: int
    outputs_per_group: int

    @property
    def is_sparse(self) -> bool:
        return self.channels_per_block > 0


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution between two fields, with everything that does not depend on the config."""

    kernels: native.Kernels
    threads: int
    weight: Floats
    bias: Floats | None
    source: Laid
    target: Laid
    residual: Laid | None
    step: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    activation: Activation | None
    flat: bool | None = None  # whether planes are one row of vectors; None: where they can be

    def __post_init__(self) -> None:
        weight = self.weight
        found = nonzeros(weight, self.source.field, self.padding, self.dilation, self.groups)
        object.__setattr__(self, "nonzeros", found)

    nonzeros: NonZeros = None  # type: ignore[assignment]

    @property
    def is_flat(self) -> bool:
        """Whether input, output and residual have no gaps: then a plane is one row of vectors."""
        if self.flat is not None:
            return self.flat
        laid = [self.source, self.target, *([self.residual] if self.residual else [])]
        return self.step == (1, 1) and all(each.field.is_flat for each in laid)

    @property
    def plane(self) -> tuple[int, int]:
        geometry = self.target.field.geometry
        return (1, geometry.vectors) if self.is_flat else (geometry.height, geometry.width)

    def shears(self, dense: bool) -> Shears:
        step = self.step[1] if self.step[1] in (1, 2) else 0
        return Shears(self.kernels.dense if dense else self.kernels.sparse, step)

    def cuts(self, config: Config) -> list[Cut]:
        found = self.shears(not config.is_sparse).cut(*self.plane, config.down, config.across)
        if found is None:
            raise ValueError(f"no kernel for {config}")
        return found

    # --- structures ---------------------------------------------------------------------------------------------

    def make(self, binding: Binding, config: Config) -> tuple[Structure, int]:
        return self.make_sparse(binding, config) if config.is_sparse else self.make_dense(binding, config)

    def make_sparse(
        self, binding: Binding, config: Config, bounds: list[int] | None = None
    ) -> tuple[Structure, int]:
        cuts = self.cuts(config)
        field = self.target.field
        outputs = len(self.weight)
        bounds = bounds or self.bounds(config, len(cuts))
        lists = pack(self.nonzeros, cuts[0].variant.outputs, config.channels_per_block, bounds)
        tasks = (len(bounds) - 1) * len(cuts) * field.groups
        return native.Sparse(
            bias=binding.keep(self.bias if self.bias is not None else np.zeros(outputs, np.float32)),
            items=binding.keep(lists.items),
            lowest=lists.lowest,
            outputs=binding.keep(lists.outputs),
            lengths=binding.keep(lists.lengths),
            blocks=binding.keep(lists.blocks),
            groups=binding.keep(lists.groups),
            group_count=len(bounds) - 1,
            **self.shared(binding, cuts),
        ), tasks

    def make_dense(self, binding: Binding, config: Config) -> tuple[Structure, int]:
        cuts = self.cuts(config)
        outputs, inputs, high, wide = self.weight.shape
        bundle = self.kernels.dense_outputs
        channel, ky, kx = (each.reshape(-1).astype(np.int32) for each in np.indices((inputs, high, wide)))
        taps = tap_bytes(
            self.source.field,
            channel,
            ky * self.dilation[0] - self.padding[0],
            kx * self.dilation[1] - self.padding[1],
        )
        bundles = -(-outputs // bundle)
        bias = np.zeros(bundles * bundle, np.float32)
        if self.bias is not None:
            bias[:outputs] = self.bias
        return native.Dense(
            bias=binding.keep(bias),
            weights=binding.keep(pack_dense(self.weight, bundle)),
            taps=binding.keep(taps),
            tap_count=len(taps),
            outputs=outputs,
            **self.shared(binding, cuts),
        ), bundles * self.target.field.groups

    def shared(self, binding: Binding, cuts: list[Cut]) -> dict[str, object]:
        """Return the fields that the sparse and the dense structure have in common."""
        source, target = self.source.field, self.target.field
        rest = self.residual.field if self.residual else None
        flat, lanes = self.is_flat, target.lanes
        columns = target.geometry.width
        tiles = np.zeros((len(cuts), 6), np.int32)
        for i, (y, x, variant) in enumerate(cuts):
            tiles[i] = (
                y * self.step[0] * source.pitch + x * self.step[1] * lanes,
                y * target.pitch + x * lanes,
                y * rest.pitch + x * lanes if rest else 0,
                (y * columns + x) * lanes,
                variant.number,
                variant.vectors,
            )
        low, high, function = clamp(self.activation)
        finish = native.Finish(
            residual=binding.address(self.residual.buffer) + 4 * rest.origin
            if self.residual and rest
            else None,
            residual_image=rest.image if rest else 0,
            residual_plane=rest.plane if rest else 0,
            residual_row=rest.pitch if rest else 0,
            mask=binding.keep(target.mask) if target.mask is not None else None,
            low=low,
            high=high,
            function=function,
        )
        return {
            "in_": binding.address(self.source.buffer) + 4 * source.origin,
            "out": binding.address(self.target.buffer) + 4 * target.origin,
            "finish": finish,
            "tiles": binding.keep(tiles),
            "in_image": source.image,
            "out_image": target.image,
            "out_plane": target.plane,
            "in_row": 0 if flat else source.pitch * self.step[0],
            "out_row": 0 if flat else target.pitch,
            "mask_row": columns * lanes,
            "in_column": self.step[1] * lanes,
            "tile_count": len(cuts),
            "images": target.groups,
        }

    def bounds(self, config: Config, tiles: int) -> list[int]:
        """Return where groups of outputs begin: enough tasks for the threads, lists that stay in the second cache."""
        outputs = len(self.weight)
        parts = 1
        jobs = tiles * self.target.field.groups
        if self.threads > 1:
            parts = max(parts, -(-4 * self.threads // jobs))
        if jobs > 1:
            parts = max(parts, -(-8 * len(self.nonzeros.weight) // SECOND_CACHE))
        parts = max(parts, -(-outputs // config.outputs_per_group))
        parts = max(1, min(parts, outputs // 4))
        bundle = 4
        edges = [round(outputs * i / parts / bundle) * bundle for i in range(parts)]
        return sorted({*edges, outputs})

    def scratch(self, config: Config) -> int:
        """Return how many floats of partial sums wait between blocks."""
        if not config.is_sparse or config.channels_per_block >= self.nonzeros.channels:
            return 0
        largest = max(cut.variant.vectors for cut in self.cuts(config))
        return (len(self.weight) + 4) * largest * self.kernels.lanes

    # --- alternatives -------------------------------------------------------------------------------------------

    def alternatives(self) -> list[Alternative]:
        """Return the sparse kernels, cheapest guess first, and the dense one last."""

        def one(config: Config, cost: float) -> Alternative:
            name = "sparse" if config.is_sparse else "dense"
            size = self.scratch(config)
            return Alternative(
                f"{name} {tuple(config)}", cost, lambda binding: [self.make(binding, config)], size
            )

        found = [one(config, cost) for cost, config in self.guesses()]
        dense = self.dense_config()
        return [*found, one(dense, self.dense_cost())] if dense else found

    def own_config(self) -> tuple[Config, float]:
        """Return the best guess, for a step that follows another channel by channel."""
        cost, config = self.guesses()[0]
        return config, cost

    def make_for(self, binding: Binding, config: Config | None, bounds: list[int]) -> tuple[Structure, int]:
        assert config is not None
        return self.make_sparse(binding, config, bounds)

    def dense_cost(self) -> float:
        field = self.target.field
        return self.weight.size * field.geometry.vectors * field.groups / 1.8

    @property
    def signature(self) -> str:
        """Return what a measurement depends on, as text."""
        shape = "x".join(map(str, self.weight.shape))
        geometry = self.target.field.geometry
        density = len(self.nonzeros.weight) / self.weight.size
        bucket = round(8 * math.log2(max(density, 1e-4)))
        rest = "+r" if self.residual else ""
        return (
            f"{shape}/{self.groups} s{self.step} d{self.dilation} {self.target.field.groups}*{tuple(geometry.grid)}"
            f"{geometry.height}x{geometry.width} flat{self.is_flat:d} 2^{bucket}/8{rest}"
        )

    def guesses(self) -> list[tuple[float, Config]]:
        """Return all sensible configs with their guessed costs in cycles, cheapest first."""
        found = [(self.sparse_cost(cuts, config), config) for cuts, config in self.sparse_configs()]
        return sorted(found)

    def sparse_configs(self) -> Iterator[tuple[list[Cut], Config]]:
        height, width = self.plane
        channels, outputs = self.nonzeros.channels, len(self.weight)
        seen = set()
        for cuts in self.shears(dense=False).all_cuts(height, width, least=4):
            down, across = len({cut.y for cut in cuts}), len({cut.x for cut in cuts})
            vectors = max(cut.variant.vectors for cut in cuts)
            for blocks in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
                if blocks > max(1, channels // 4) or (blocks > 1 and self.groups > 1):
                    break
                sizes = {outputs}
                if self.groups > 1:
                    sizes = {8}  # few outputs read the same input: go plane by plane
                elif blocks > 1:
                    sizes |= {max(16, bytes // (4 * self.kernels.lanes * vectors) // 8 * 8) for bytes in SUMS}
                for size in sizes:
                    config = Config(down, across, -(-channels // blocks), min(size, outputs))
                    if config not in seen:
                        seen.add(config)
                        yield cuts, config

    def dense_config(self) -> Config | None:
        """Return the dense kernel with the largest tiles; None for grouped convolutions."""
        if self.groups > 1:
            return None
        height, width = self.plane
        cuts = self.shears(dense=True).all_cuts(height, width)
        best = min(cuts, key=len)
        return Config(len({cut.y for cut in best}), len({cut.x for cut in best}), 0, len(self.weight))

    def sparse_cost(self, cuts: list[Cut], config: Config) -> float:
        """Guess the cycles of all tiles.

        Two multiply-adds per cycle from the first cache, one from the second; the constants were fitted to the
        measured times of some thousand configs of ResNet-50 and MobileNet layers.
        """
        outputs = len(self.weight)
        blocks = -(-self.nonzeros.channels // config.channels_per_block)
        groups = -(-outputs // config.outputs_per_group)
        per_output = len(self.nonzeros.weight) / outputs
        line = 4 * self.kernels.lanes
        (kh, kw) = self.weight.shape[2:]
        total = 0.0
        for cut in cuts:
            rows, columns, vectors = cut.variant.rows, cut.variant.columns, cut.variant.vectors
            if self.is_flat:
                seen = vectors
            else:
                reach_y = (rows - 1) * self.step[0] + (kh - 1) * self.dilation[0] + 1
                reach_x = (columns - 1) * self.step[1] + (kw - 1) * self.dilation[1] + 1
                seen = reach_y * reach_x
            foot = seen * line * config.channels_per_block
            sums_foot = vectors * line * config.outputs_per_group if blocks > 1 else 0
            near = foot + min(sums_foot, 10 * 1024)
            missing = min(1.0, max(0.0, (near - 30 * 1024) / (104 * 1024)))
            per_item = vectors / 2 + 0.13 + 0.55 * missing * vectors
            sums = (blocks - 1) * (1.8 * vectors + 6.4 / cut.variant.outputs)
            ends = 4 * vectors + 17 / cut.variant.outputs
            reads = 0.5 * groups * seen * self.nonzeros.channels * (1 - missing) * min(1.0, per_output / 16)
            total += outputs * (per_output * per_item + sums + ends) + reads
        return total * self.target.field.groups


def clamp(activation: Activation | None) -> tuple[float, float, int]:
    """Return the bounds of an activation that is a clamp, and the number of one that is not."""
    name = activation.name if activation else ""
    if name == "relu":
        return 0.0, float("inf"), 0
    if name == "relu6":
        return 0.0, 6.0, 0
    return -float("inf"), float("inf"), native.FUNCTIONS.index(name)
