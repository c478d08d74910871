"""The Erdos-Renyi-Kernel allocation (RigL; Evci et al., ICML 2020)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from ..core.budget.allocation import ALLOCATIONS, Allocation, Cut, Pool
from ..core.selection.select import Quota

__all__ = ["ERK", "erk_densities"]


@final
@ALLOCATIONS.register("erk")
@dataclass(frozen=True)
class ERK(Allocation):
    """Erdos-Renyi-Kernel (RigL): density in proportion to sum(shape) / prod(shape), at most 1."""

    spares_small_layers: ClassVar[bool] = True
    shares_by_shape: ClassVar[bool] = True
    power: float = 1.0  # 1 is ERK, 0 is uniform

    def __post_init__(self) -> None:
        if self.power < 0:
            raise ValueError(f"power must not be negative, got {self.power}")

    def cut(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        if quota.zeros == 0:
            return [None] * len(pool.layers)
        shapes = [layer.expert_shape for layer in pool.layers]
        copies = [layer.numel // math.prod(layer.expert_shape) for layer in pool.layers]
        _, densities = erk_densities(shapes, quota.zeros / pool.numel, power=self.power, copies=copies)
        ideal = [layer.numel * (1.0 - d) for layer, d in zip(pool.layers, densities, strict=True)]
        return pool.cut_by_counts(ideal, quota)


def erk_densities(
    shapes: Sequence[Sequence[int]],
    sparsity: float,
    *,
    power: float = 1.0,
    copies: Sequence[int] | None = None,
) -> tuple[float, list[float]]:
    """Return ERK's epsilon and the density of each layer for a total of `sparsity`.

    Layers that would need more than all their weights become dense, and the others make up for it. A layer may hold
    several `copies` of its shape: the experts of a mixture.

    >>> epsilon, densities = erk_densities([(16, 3, 3, 3), (64, 64, 3, 3)], 0.8)
    >>> round(epsilon, 3), [round(d, 3) for d in densities]
    (52.448, [1.0, 0.191])
    """
    counts = [n * math.prod(shape) for shape, n in zip(shapes, copies or [1] * len(shapes), strict=True)]
    if sparsity <= 0.0:
        return math.inf, [1.0] * len(shapes)
    ratios = [(sum(shape) / math.prod(shape)) ** power for shape in shapes]
    dense: set[int] = set()
    while True:
        free = [i for i in range(len(shapes)) if i not in dense]
        # Rounded as in the RigL program, so that its published densities come out to the last weight.
        budget = sum(counts[i] - math.floor(sparsity * counts[i]) for i in free)
        budget -= sum(math.floor(sparsity * counts[i]) for i in dense)
        if not free or budget <= 0:
            return 0.0, [1.0 if i in dense else 0.0 for i in range(len(shapes))]
        epsilon = budget / sum(ratios[i] * counts[i] for i in free)
        largest = max(ratios[i] for i in free)
        if epsilon * largest <= 1.0:
            return epsilon, [1.0 if i in dense else epsilon * ratios[i] for i in range(len(shapes))]
        dense |= {i for i in free if ratios[i] == largest}
