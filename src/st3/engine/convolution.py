"""A convolution's kernels: sparse with some tile and block, or dense; which is best is measured or guessed."""

import math
from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import native
from .config import Alternative, Config
from .guesses import dense_guesses, depthwise_guesses, sparse_guesses
from .packing import NonZeros, nonzeros, pack, pack_dense, tap_bytes
from .planner import Binding
from .program import Activation, Floats
from .tiles import Cut, Shears
from .values import Laid

MOST_OUTPUTS = 8  # at a time, of any kernel
SECOND_CACHE = 1024 * 1024  # bytes of lists that a group of outputs may have


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

    def shears(self, kernel: str) -> Shears:
        step = self.step[1] if self.step[1] in (1, 2) else 0
        return Shears(self.kernels.variants[kernel], step)

    def cuts(self, config: Config) -> list[Cut]:
        found = self.shears(config.kernel).cut(*self.plane, config.down, config.across)
        if found is None:
            raise ValueError(f"no kernel for {config}")
        return found

    # --- structures ---------------------------------------------------------------------------------------------

    def make(
        self, binding: Binding, config: Config, bounds: list[int] | None = None
    ) -> tuple[Structure, int]:
        """Return the structure and the number of its tasks; `bounds` are where groups of outputs begin."""
        cuts = self.cuts(config)
        bounds = bounds or self.bounds(config, cuts)
        if config.kernel == "depthwise":
            return self.make_depthwise(binding, cuts)
        made = self.make_sparse if config.is_sparse else self.make_dense
        return made(binding, config, cuts, bounds), (len(bounds) - 1) * len(cuts) * self.target.field.groups

    def make_sparse(
        self, binding: Binding, config: Config, cuts: list[Cut], bounds: list[int]
    ) -> native.Sparse:
        lists = pack(self.nonzeros, cuts[0].variant.outputs, config.channels_per_block, bounds)
        return native.Sparse(
            items=binding.keep(lists.items),
            lowest=lists.lowest,
            outputs=binding.keep(lists.outputs),
            lengths=binding.keep(lists.lengths),
            blocks=binding.keep(lists.blocks),
            groups=binding.keep(lists.groups),
            group_count=len(bounds) - 1,
            by_place=self.threads > 1 and len(cuts) > 1 and self.bytes(config) <= SECOND_CACHE,
            **self.shared(binding, cuts),
        )

    def make_dense(
        self, binding: Binding, config: Config, cuts: list[Cut], bounds: list[int]
    ) -> native.Dense:
        _, inputs, high, wide = self.weight.shape
        channel, ky, kx = (each.reshape(-1).astype(np.int32) for each in np.indices((inputs, high, wide)))
        taps = tap_bytes(
            self.source.field,
            channel,
            ky * self.dilation[0] - self.padding[0],
            kx * self.dilation[1] - self.padding[1],
        )
        packed = pack_dense(
            self.weight, cuts[0].variant.outputs, config.channels_per_block * high * wide, bounds
        )
        return native.Dense(
            weights=binding.keep(packed.weights),
            starts=binding.keep(packed.starts),
            taps=binding.keep(taps),
            blocks=binding.keep(packed.blocks),
            block_count=len(packed.blocks) - 1,
            bounds=binding.keep(np.array(bounds, np.int32)),
            group_count=len(bounds) - 1,
            by_place=self.threads > 1 and len(cuts) > 1 and self.bytes(config) <= SECOND_CACHE,
            **self.shared(binding, cuts),
        )

    def make_depthwise(self, binding: Binding, cuts: list[Cut]) -> tuple[native.Depthwise, int]:
        source, images = self.source.field, self.target.field.groups
        shared = self.shared(binding, cuts)
        del shared["in_column"]
        shared["in_row"] = source.pitch
        channels = len(self.weight)
        per_task = max(1, min(8, channels * images // (4 * self.threads)))
        return native.Depthwise(
            weights=binding.keep(self.weight),
            in_plane=source.plane,
            first_tap=self.padding[0] * source.pitch + self.padding[1] * source.lanes,
            channels=channels,
            channels_per_task=per_task,
            **shared,
        ), -(-channels // per_task) * images

    @property
    def is_depthwise(self) -> bool:
        """Whether the kernel for dense depthwise 3x3 convolutions computes it."""
        each = self.groups == len(self.weight) and self.weight.shape[1:] == (1, 3, 3)
        return each and self.dilation == (1, 1) and self.step in ((1, 1), (2, 2)) and not self.is_flat

    def shared(self, binding: Binding, cuts: list[Cut]) -> dict[str, Any]:
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
        bias = np.zeros(
            len(self.weight) + MOST_OUTPUTS, np.float32
        )  # a bundle may reach beyond the last output
        if self.bias is not None:
            bias[: len(self.weight)] = self.bias
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
            "bias": binding.keep(bias),
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

    def bounds(self, config: Config, cuts: list[Cut]) -> list[int]:
        """Return where groups of outputs begin: enough tasks for the threads, lists that stay in the second cache."""
        outputs = len(self.weight)
        parts = 1
        jobs = len(cuts) * self.target.field.groups
        if self.threads > 1:
            parts = max(parts, -(-4 * self.threads // jobs))
        if jobs > 1:
            parts = max(parts, -(-self.bytes(config) // SECOND_CACHE))
        parts = max(parts, -(-outputs // config.outputs_per_group))
        parts = max(1, min(parts, outputs // 4))
        bundle = cuts[0].variant.outputs
        edges = [round(outputs * i / parts / bundle) * bundle for i in range(parts)]
        return sorted({*edges, outputs})

    def bytes(self, config: Config) -> int:
        """Return how many bytes of weights a kernel reads."""
        return 8 * len(self.nonzeros.weight) if config.is_sparse else 4 * self.weight.size

    def scratch(self, config: Config) -> int:
        """Return how many floats of partial sums wait between blocks."""
        if config.channels_per_block >= self.nonzeros.channels:
            return 0
        largest = max(cut.variant.vectors for cut in self.cuts(config))
        return (len(self.weight) + MOST_OUTPUTS) * largest * self.kernels.lanes

    # --- alternatives -------------------------------------------------------------------------------------------

    def alternatives(self) -> list[Alternative]:
        """Return the sparse kernels, cheapest guess first, then the dense ones."""
        found = [*sparse_guesses(self), *dense_guesses(self), *depthwise_guesses(self)]
        return [
            Alternative(config.label, cost, self.maker(config), self.scratch(config))
            for cost, config in found
        ]

    def maker(self, config: Config) -> Callable[[Binding], list[tuple[Structure, int]]]:
        return lambda binding: [self.make(binding, config)]

    def own_config(self) -> tuple[Config, float]:
        """Return the best guess, for a step that follows another channel by channel."""
        cost, config = min([*sparse_guesses(self), *depthwise_guesses(self)])
        return config, cost

    def make_for(self, binding: Binding, config: Config | None, bounds: list[int]) -> tuple[Structure, int]:
        assert config is not None
        return self.make(binding, config, bounds)

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


def clamp(activation: Activation | None) -> tuple[float, float, int]:
    """Return the bounds of an activation that is a clamp, and the number of one that is not."""
    name = activation.name if activation else ""
    if name == "relu":
        return 0.0, float("inf"), 0
    if name == "relu6":
        return 0.0, 6.0, 0
    return -float("inf"), float("inf"), native.FUNCTIONS.index(name)
