"""What is asked of each layer after a number of steps: ramp, allocation, layers with a sparsity of their own."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from torch import Tensor

from ..layers.layer import Layer
from ..selection.select import Hint, Quota, quota
from .allocation import Allocation, Cut, Pool
from .floors import cuts_with_floor
from .ramp import Ramp

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """The target `sparsity` of the common budget, how it is approached and how it is shared."""

    sparsity: float
    ramp: Ramp
    allocation: Allocation
    min_weights: int = 0
    total_steps: int = 1
    has_target: bool = True  # False: the method decides, `sparsity` is 0 and the ramp asks for nothing
    hints: dict[object, Hint] = field(default_factory=dict, repr=False)

    def is_reached(self, step: int) -> bool:
        """Whether the full target is asked for after `step` steps; without a target, whether the run is over."""
        if not self.has_target:
            return step >= self.total_steps
        return self.asked(step) >= self.sparsity

    def asked(self, step: int) -> float:
        """Return the sparsity asked for after `step` steps: the ramp's part of the target."""
        share = self.ramp.share(min(step, self.total_steps), self.total_steps)
        if not 0.0 <= share < 1.0 + 1e-9:
            raise ValueError(
                f"a ramp asks for a part of the target, from 0 to 1, but {self.ramp} asks for {share!r} at step {step} "
                f"of {self.total_steps}"
            )
        # The last rounding error of a ramp's arithmetic must not cost a weight.
        return self.sparsity if share > 1.0 - 1e-9 else self.sparsity * share

    def check_ramp(self) -> None:
        """Raise unless the ramp reaches the target within the run."""
        if not self.is_reached(self.total_steps):
            raise ValueError(
                f"the ramp {self.ramp} has not reached the target at the end of the run, step {self.total_steps}: "
                f"sparsity would stop at {self.asked(self.total_steps):.4g} of {self.sparsity:g}; let it end earlier"
            )
        self.asked(0)

    def find_fall(self) -> int | None:
        """Return a step at which the ramp asks for less than before, None if it only rises; looks at 1,000 steps."""
        steps = range(0, self.total_steps + 1, max(1, self.total_steps // 1000))
        pairs = itertools.pairwise(steps)
        return next((step for before, step in pairs if self.asked(step) < self.asked(before)), None)

    def cuts(self, layers: Sequence[Layer], raws: Sequence[Tensor], step: int) -> list[Cut | None]:
        """Return where to cut each layer after `step` steps; None where it stays dense."""
        return self.cuts_at(layers, raws, self.asked(step))

    def cuts_at(
        self,
        layers: Sequence[Layer],
        scores: Sequence[Tensor],
        sparsity: float,
        allocation: Allocation | None = None,
        *,
        are_masks: bool = False,
    ) -> list[Cut | None]:
        """Return where to cut each layer's scores for a sparsity of the common budget; see `Pool` for `are_masks`."""
        allocation = self.allocation if allocation is None else allocation
        pool = Pool(layers, scores, self.hints, are_masks)
        if {layer.sparsity for layer in layers} == {None}:
            return self._cut_pool(allocation, pool, sparsity)
        cuts: list[Cut | None] = [None] * len(layers)
        common = [i for i, layer in enumerate(layers) if layer.sparsity is None]
        if common:
            found = self._cut_pool(allocation, pool.part(common), sparsity)
            for i, cut in zip(common, found, strict=True):
                cuts[i] = cut
        progress = sparsity / self.sparsity if self.sparsity else 1.0
        for i, layer in enumerate(layers):
            if layer.sparsity is not None:
                (cuts[i],) = self._cut_pool(_Alone(), pool.part([i]), layer.sparsity * progress)
        return cuts

    def _cut_pool(self, allocation: Allocation, pool: Pool, sparsity: float) -> list[Cut | None]:
        zeros = quota(pool.numel, sparsity)
        if self.min_weights:
            return cuts_with_floor(allocation, pool, zeros, self.min_weights)
        return allocation.cut(pool, zeros)

    def require_feasible(self, layers: Sequence[Layer], raws: Sequence[Tensor]) -> None:
        """Raise now what the end of the ramp would raise: a floor or allocation that cannot meet the target."""
        self.cuts_at(layers, raws, self.sparsity)
        self.hints.clear()

    def zeros_asked(self, layers: Sequence[Layer]) -> int:
        """Return how many weights the common budget must have lost at the target."""
        return quota(sum(layer.numel for layer in layers if layer.sparsity is None), self.sparsity).zeros


@final
class _Alone(Allocation):
    """A single layer has nothing to share."""

    def cut(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        return pool.cut_by_counts([float(quota.zeros)], quota)
