"""ST-3 sigma's allocation: one threshold for all layers, weighted by their shapes."""

import math
from dataclasses import dataclass
from typing import Literal, final

from ..core.budget.allocation import ALLOCATIONS, Allocation, Cut, Pool
from ..core.layers.layer import Layer
from ..core.selection.select import Quota

__all__ = ["Sigma"]


@final
@ALLOCATIONS.register("sigma")
@dataclass(frozen=True)
class Sigma(Allocation):
    """One threshold on magnitude * factor (ST-3 sigma): zeroes more in layers with few, large weights.

    The factor of a layer is the square root of the sum of its shape. The paper's text says "the number of weights in
    its kernel" and motivates it with the fan-in; its pseudo-code and the authors' program take the sum of the shape,
    and only that or the fan-in fits the published MACs (docs/decisions/0004-sigma-factor.md).
    """

    factor: Literal["shape", "fan_in", "count"] = "shape"

    def __post_init__(self) -> None:
        if self.factor not in ("shape", "fan_in", "count"):
            raise ValueError(f"factor must be 'shape', 'fan_in' or 'count', got {self.factor!r}")

    def factor_of(self, layer: Layer) -> float:
        """Return the factor of one layer."""
        if self.factor == "shape":
            return math.sqrt(sum(layer.expert_shape))
        if self.factor == "fan_in":
            return math.sqrt(layer.filter_size)
        return math.sqrt(layer.numel)

    def cut(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        return pool.cut(quota, [self.factor_of(layer) for layer in pool.layers])
