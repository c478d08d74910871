"""What is asked of each layer after a number of steps: ramp, allocation, layers with a sparsity of their own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .allocations import Allocation, Cut, Pool, Uniform
from .floors import cuts_with_floor
from .layers import Layer
from .masks import Moment
from .ramps import Ramp
from .selection import Hint, quota

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

    def reached(self, step: int) -> bool:
        """Tell whether the full target is asked for after `step` steps; without a target, whether the run is over."""
        if not self.has_target:
            return step >= self.total_steps
        return self.asked(step) >= self.sparsity

    def asked(self, step: int) -> float:
        """Return the sparsity asked for after `step` steps: the ramp's value, without its last rounding error."""
        now = self.ramp(step)
        if not 0.0 <= now < 1.0:
            raise ValueError(
                f"the ramp must stay at or above 0 and below 1, but asks for {now!r} at step {step}"
            )
        return self.sparsity if math.isclose(now, self.sparsity, rel_tol=1e-9) else now

    def cuts(self, layers: Sequence[Layer], raws: Sequence[Tensor], step: int) -> list[Cut | None]:
        """Return where to cut each layer after `step` steps; None where it stays dense."""
        return self._cuts(layers, raws, self.asked(step))

    def moment(self, layers: Sequence[Layer], step: int) -> Moment:
        """Return where training stands in the step of that number, for a method that chooses masks."""

        def cut(scores: Sequence[Tensor], sparsity: float) -> list[Tensor]:
            cuts = self._cuts(layers, scores, sparsity)
            return [
                torch.ones_like(score, dtype=torch.bool) if found is None else score.abs() > found.threshold
                for score, found in zip(scores, cuts, strict=True)
            ]

        before = self.asked(max(0, step - 1))
        return Moment(step, self.total_steps, self.sparsity, self.asked(step), before, cut)

    def require_feasible(self, layers: Sequence[Layer], raws: Sequence[Tensor]) -> None:
        """Raise now what the end of the ramp would raise: a floor or allocation that cannot meet the target."""
        self._cuts(layers, raws, self.sparsity)
        self.hints.clear()

    def _cuts(self, layers: Sequence[Layer], raws: Sequence[Tensor], now: float) -> list[Cut | None]:
        cuts: list[Cut | None] = [None] * len(layers)
        common = [i for i, layer in enumerate(layers) if layer.sparsity is None]
        if common:
            pool = Pool([layers[i] for i in common], [raws[i] for i in common], self.hints)
            found = cuts_with_floor(self.allocation, pool, quota(pool.weights, now), self.min_weights)
            for i, cut in zip(common, found, strict=True):
                cuts[i] = cut
        progress = now / self.sparsity if self.sparsity else 1.0
        for i, layer in enumerate(layers):
            if layer.sparsity is not None:
                alone = Pool([layer], [raws[i]], self.hints)
                own = quota(layer.weights, layer.sparsity * progress)
                cuts[i] = cuts_with_floor(Uniform(), alone, own, self.min_weights)[0]
        return cuts

    def zeros_asked(self, layers: Sequence[Layer]) -> int:
        """Return how many weights the common budget must have lost at the target."""
        return quota(sum(layer.weights for layer in layers if layer.sparsity is None), self.sparsity).zeros
