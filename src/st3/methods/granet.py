"""GraNet: gradual pruning with neuro-regeneration ("Sparse training via boosting pruning plasticity with
neuroregeneration", Liu et al., NeurIPS 2021).

    W_sparse = W * mask                                               forward
    dL/dW    = dL/dW_sparse * mask                                    backward

Every `every` steps (and at least 20 times per run), from the ramp's first step to the end of training:

    prune        to the sparsity of the ramp, by magnitude (allocation "global": over all layers)
    regenerate   each layer gives up its ceil(p * active) weakest weights and gains as many by the largest gradients,
                 p from 0.5 to 0.005 along half a cosine over the run

The defaults are the authors' for CIFAR: a cubic ramp from the first step to the middle of the run, every 1000 steps.
For ImageNet they prune up to 0.3 of the run, every 4000 steps. Dense-to-sparse is the default; `initial=0.5` starts
from random masks of that sparsity, and the ramp leads from there to the target (sparse-to-sparse).
The authors share this first sparsity by ERK and prune by one threshold over all layers:
GraNet(initial=0.5, initial_allocation="erk"). Grown weights start at 0 with momentum 0, also those that the pruning of
the same step has just cut; only a weight that regeneration itself gives up and grows again keeps its value.

Different from the authors' program: masks have exact counts, the last pruning comes with the ramp's last step so that
the target is met, the last step of the run no longer exchanges weights, and a network with too few weights left never
becomes dense again. The optimizer gets the gradients of active weights only; a norm clipped in a step that changes the
masks includes the others. Sharded weights (fully_shard) are refused, since a layer must be whole for the exchange.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..core.budget.allocation import ALLOCATIONS
from ..core.choices import check_count
from ..core.families.mask_view import MaskView, Moment, exchange_weakest, random_scores, without_ties
from ..core.families.masked import MaskMethod
from ..core.method import METHODS

__all__ = ["GraNet"]

LEAST = 0.005  # of the active weights that are exchanged at the end


@final
@METHODS.register("granet")
@dataclass(frozen=True)
class GraNet(MaskMethod):
    """Gradual magnitude pruning; with each pruning the weakest weights give way to others by gradient."""

    usual_times: ClassVar[tuple[float, float] | None] = (0.0, 0.5)
    grows: ClassVar[bool] = True
    why_not_in_cycles: ClassVar[str] = (
        "it exchanges weights by gradient while a ramp rises, and a cycle has no ramp"
    )
    every: int = 1000  # steps between two changes
    exchange: float = 0.5  # part of the active weights, at first
    initial: float = 0.0  # sparsity to begin with
    initial_allocation: str | None = None  # how it is shared, such as "erk"; None: as every pruning is
    seed: int = 0  # of the first masks, if there are any

    def __post_init__(self) -> None:
        check_count(self.every, "every", least=1, meaning="a number of steps")
        if not LEAST <= self.exchange < 1:
            raise ValueError(
                f"exchange is a part of the active weights, from {LEAST} to below 1, got {self.exchange}"
            )
        if not 0 <= self.initial < 1:
            raise ValueError(f"initial is a sparsity, at least 0 and below 1, got {self.initial}")
        if self.initial_allocation is not None:
            _ = ALLOCATIONS[self.initial_allocation]  # refuses an unknown name
            if not self.initial:
                raise ValueError(
                    "initial_allocation has no effect with initial=0: give the sparsity to begin with"
                )

    def first_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        scores = random_scores(views, self.seed, 0) if self.initial else [view.weight for view in views]
        return moment.largest(scores, self._asked(moment), self.initial_allocation)

    def is_due(self, moment: Moment) -> bool:
        if moment.arrives:
            return True
        return self._asked(moment) > 0 and moment.is_every(self.every) and moment.progress < 1.0

    def prune_first(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        kept = moment.largest([_strength(view) for view in views], self._asked(moment))
        return [view.mask & mask for view, mask in zip(views, kept, strict=True)]

    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        if moment.progress >= 1.0:
            return [view.mask for view in views]  # nothing could be learned any more
        part = LEAST + (self.exchange - LEAST) / 2 * (1 + math.cos(math.pi * moment.progress))
        return [_regenerate(view, part) for view in views]

    def _asked(self, moment: Moment) -> float:
        """The ramp rises from 0 to the target; here from the initial sparsity."""
        if self.initial >= moment.target:
            return moment.target
        return self.initial + (moment.target - self.initial) * moment.asked / moment.target


def _strength(view: MaskView) -> Tensor:
    """Magnitudes; weights that have grown and not moved yet come before zeroed ones, the first in order first."""
    place = torch.arange(view.weight.numel(), 0, -1, dtype=torch.float64, device=view.weight.device)
    return torch.where(
        view.mask, without_ties(view.weight).abs().double() + 1e-30 * place.view(view.weight.shape), 0.0
    )


def _regenerate(view: MaskView, part: float) -> Tensor:
    if view.gradient is None:
        return view.mask
    active = int(view.mask.sum())
    return exchange_weakest(view, min(active, math.ceil(part * active)), view.gradient.abs())
