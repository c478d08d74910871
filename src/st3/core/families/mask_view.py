"""What a method sees when it chooses new masks, and ways to choose.

Masks are chosen from whole layers, by the same exact selection that finds thresholds, so their counts are exact.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from ..budget.allocation import resolve_allocation
from ..budget.plan import Plan
from ..budget.ties import HALF, kept_masks
from ..layers.layer import Layer
from .blocks import block_magnitudes, spread_over_blocks

__all__ = [
    "MaskView",
    "Moment",
    "exchange_weakest",
    "first_largest",
    "moment_of",
    "random_scores",
    "without_ties",
]


@dataclass(frozen=True, eq=False)
class MaskView:
    """One layer as a method sees it: the local part, where it is sharded."""

    layer: Layer
    weight: Tensor  # 0 where zeroed
    mask: Tensor
    gradient: Tensor | None = None  # of all weights, zeroed ones too; if the method asked for it and one came


@dataclass(frozen=True)
class Moment:
    """Where training stands when masks are chosen."""

    step: int  # the number of the step under way, from 1; 0 before the first
    total_steps: int
    target: float
    asked: float  # by the ramp, after this step
    asked_before: float
    cut: Callable[[Sequence[Tensor], float, str | None], list[Tensor]]  # see `largest`

    @property
    def progress(self) -> float:
        """The part of the run that is over, 0 to 1."""
        return min(1.0, self.step / self.total_steps)

    @property
    def arrives(self) -> bool:
        """Whether the ramp reaches its target with this step."""
        return self.asked_before < self.target <= self.asked

    def is_every(self, steps: int) -> bool:
        """Whether masks change at this step: every `steps` steps, and at least 20 times per run."""
        return self.step > 0 and self.step % max(1, min(steps, self.total_steps // 20)) == 0

    def largest(
        self, scores: Sequence[Tensor], sparsity: float, allocation: str | None = None
    ) -> list[Tensor]:
        """Return masks of the weights with the largest scores, shared among the layers by the allocation.

        `allocation` is the name of another one than that of the run.
        """
        if sparsity == 0.0:
            return [torch.ones_like(score, dtype=torch.bool) for score in scores]
        return self.cut([without_ties(score) for score in scores], sparsity, allocation)


def moment_of(plan: Plan, layers: Sequence[Layer], step: int) -> Moment:
    """Return where training stands in the step of that number."""

    def cut(scores: Sequence[Tensor], sparsity: float, allocation: str | None) -> list[Tensor]:
        other = None if allocation is None else resolve_allocation(allocation)
        scores = [block_magnitudes(score, layer) for score, layer in zip(scores, layers, strict=True)]
        cuts = plan.cuts_at(layers, scores, sparsity, other, are_masks=True)
        masks = kept_masks(layers, cuts, scores, are_masks=True)
        return [spread_over_blocks(mask, layer) for mask, layer in zip(masks, layers, strict=True)]

    before = plan.asked(max(0, step - 1))
    return Moment(step, plan.total_steps, plan.sparsity, plan.asked(step), before, cut)


def exchange_weakest(view: MaskView, count: int, growth: Tensor) -> Tensor:
    """Return the mask after the `count` weakest active weights gave way to as many with the largest `growth`.

    All positions that are not kept may grow, those just given up too. Of equal weights or growths the first in order
    stay or grow, on every device and in every process alike.
    """
    magnitude = view.weight.abs().masked_fill(~view.mask, -1.0).flatten()
    kept = first_largest(magnitude, int(view.mask.sum()) - count)
    scores = growth.to(magnitude.dtype).flatten().masked_fill(kept, -1.0)
    return (kept | first_largest(scores, count)).view(view.mask.shape)


def first_largest(scores: Tensor, count: int) -> Tensor:
    """Return the mask of the `count` largest scores; of equal ones the first in order, which topk does not promise.

    >>> first_largest(torch.tensor([1.0, 2.0, 1.0, 1.0]), 3)
    tensor([ True,  True,  True, False])
    """
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    scores = scores.nan_to_num(nan=math.inf, posinf=math.inf)  # a NaN gradient must not cost a weight
    least = scores.kthvalue(scores.numel() - count + 1).values
    above, tied = scores > least, scores == least
    return above | (tied & (tied.cumsum(0) <= count - above.sum()))


def without_ties(score: Tensor) -> Tensor:
    """Make equal scores differ in half precision, where they are common: the first in order become the largest."""
    if score.dtype not in HALF:
        return score
    place = torch.arange(score.numel(), dtype=torch.float64, device=score.device).view(score.shape)
    return score.abs().double() * (1.0 - 2.0**-13 * place / max(1, score.numel()))


def random_scores(views: Sequence[MaskView], seed: int, step: int) -> list[Tensor]:
    """Return a random score for every weight; the same in all processes, and apart from torch's own random numbers."""
    generator = torch.Generator().manual_seed(Random(f"{seed} {step}").getrandbits(32))
    return [
        torch.rand(view.weight.shape, generator=generator).to(view.weight.device) + 2.0**-24 for view in views
    ]
