"""A convolution between two fields, and the alternatives for computing it."""

import math
from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass
from functools import cached_property

from .. import native
from ..program import Activation, Floats
from .assemble import Alternative, Assembly
from .configs import Config, Tile, TileSizes, dense_candidates, depthwise_candidates, sparse_candidates
from .lanewise import KERNEL as LANEWISE
from .lanewise import lanewise_candidates, lanewise_tiles
from .pack import NonZeros, nonzeros
from .structures import make_structure, scratch
from .values import FieldArray


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution between two fields: everything that does not depend on the config."""

    kernels: native.Kernels
    threads: int
    weight: Floats
    bias: Floats | None
    source: FieldArray
    target: FieldArray
    residual: FieldArray | None
    step: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    activation: Activation | None
    is_masked: bool = True  # whether pixels outside the image must become zero
    flat: bool | None = None  # whether planes are treated as one row of vectors; None: if possible

    @cached_property
    def nonzeros(self) -> NonZeros:
        return nonzeros(self.weight, self.source.field, self.padding, self.dilation, self.groups)

    @property
    def is_flat(self) -> bool:
        """Whether a plane is treated as one row of vectors: input, output and residual have no gaps between rows."""
        if self.flat is not None:
            return self.flat
        arrays = [self.source, self.target, *([self.residual] if self.residual else [])]
        return self.step == (1, 1) and all(each.field.is_flat for each in arrays)

    @property
    def plane(self) -> tuple[int, int]:
        geometry = self.target.field.geometry
        return (1, geometry.vectors) if self.is_flat else (geometry.height, geometry.width)

    def tile_sizes(self, kernel: str) -> TileSizes:
        step = self.step[1] if self.step[1] in (1, 2) else 0
        return TileSizes(self.kernels.variants[kernel], step)

    def tiles(self, config: Config) -> list[Tile]:
        if config.kernel == LANEWISE:
            return lanewise_tiles(self)
        found = self.tile_sizes(config.kernel).tiling(*self.plane, config.down, config.across)
        if found is None:
            raise ValueError(f"no kernel for {config}")
        return found

    @property
    def is_depthwise(self) -> bool:
        """Whether the kernel for dense 3x3 depthwise convolutions can compute it."""
        each = self.groups == len(self.weight) and self.weight.shape[1:] == (1, 3, 3)
        return each and self.dilation == (1, 1) and self.step in ((1, 1), (2, 2)) and not self.is_flat

    def alternatives(self) -> list[Alternative]:
        """Return the alternatives, kernel by kernel, each in the order of estimated cost."""
        found = [*sparse_candidates(self), *dense_candidates(self), *lanewise_candidates(self)]
        found += depthwise_candidates(self)
        return [
            Alternative(config.label, cost, self.maker(config), scratch(self, config))
            for cost, config in found
        ]

    def maker(self, config: Config) -> Callable[[Assembly], list[tuple[Structure, int]]]:
        return lambda assembly: [make_structure(self, assembly, config)]

    def best_config(self) -> tuple[Config, float]:
        """Return the config with the lowest estimate, for the second part of a chain."""
        cost, config = min([*sparse_candidates(self), *depthwise_candidates(self)])
        return config, cost

    def make_in_groups(
        self, assembly: Assembly, config: Config | None, bounds: list[int]
    ) -> tuple[Structure, int]:
        assert config is not None
        return make_structure(self, assembly, config, bounds)

    @property
    def signature(self) -> str:
        """Everything that a measurement depends on, as text."""
        shape = "x".join(map(str, self.weight.shape))
        geometry = self.target.field.geometry
        density = len(self.nonzeros.weight) / self.weight.size
        bucket = round(8 * math.log2(max(density, 1e-4)))
        rest = "+r" if self.residual else ""
        return (
            f"{shape}/{self.groups} s{self.step} d{self.dilation} {self.target.field.groups}*{tuple(geometry.grid)}"
            f"{geometry.height}x{geometry.width} flat{self.is_flat:d} 2^{bucket}/8{rest}"
        )
