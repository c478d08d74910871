"""A convolution between two fields, and the ways to compute it: which is best is measured or guessed."""

import math
from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass
from functools import cached_property

from . import native
from .config import Alternative, Config
from .guesses import dense_guesses, depthwise_guesses, sparse_guesses
from .lanewise import KERNEL as LANEWISE
from .lanewise import lanewise_cuts, lanewise_guesses
from .packing import NonZeros, nonzeros
from .planned import Binding
from .program import Activation, Floats
from .structures import scratch, structure
from .tiles import Cut, Shears
from .values import Laid


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
    masked: bool = True  # whether pixels outside the picture must become zero
    flat: bool | None = None  # whether planes are one row of vectors; None: where they can be

    @cached_property
    def nonzeros(self) -> NonZeros:
        return nonzeros(self.weight, self.source.field, self.padding, self.dilation, self.groups)

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
        if config.kernel == LANEWISE:
            return lanewise_cuts(self)
        found = self.shears(config.kernel).cut(*self.plane, config.down, config.across)
        if found is None:
            raise ValueError(f"no kernel for {config}")
        return found

    @property
    def is_depthwise(self) -> bool:
        """Whether the kernel for dense depthwise 3x3 convolutions computes it."""
        each = self.groups == len(self.weight) and self.weight.shape[1:] == (1, 3, 3)
        return each and self.dilation == (1, 1) and self.step in ((1, 1), (2, 2)) and not self.is_flat

    def alternatives(self) -> list[Alternative]:
        """Return the sparse kernels, cheapest guess first, then the dense and the depthwise ones."""
        found = [*sparse_guesses(self), *dense_guesses(self), *lanewise_guesses(self)]
        found += depthwise_guesses(self)
        return [
            Alternative(config.label, cost, self.maker(config), scratch(self, config))
            for cost, config in found
        ]

    def maker(self, config: Config) -> Callable[[Binding], list[tuple[Structure, int]]]:
        return lambda binding: [structure(self, binding, config)]

    def own_config(self) -> tuple[Config, float]:
        """Return the best guess, for a step that follows another channel by channel."""
        cost, config = min([*sparse_guesses(self), *depthwise_guesses(self)])
        return config, cost

    def make_for(self, binding: Binding, config: Config | None, bounds: list[int]) -> tuple[Structure, int]:
        assert config is not None
        return structure(self, binding, config, bounds)

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
