"""GraNet: gradual pruning with neuro-regeneration ("Sparse training via boosting pruning plasticity with
neuroregeneration", Liu et al., NeurIPS 2021).

    W_sparse = W * mask                                               forward
    dL/dW    = dL/dW_sparse * mask                                    backward

Every `every` steps (oftener in a run of less than twenty times as many), from the ramp's first step to the end of
training:

    prune        to the sparsity of the ramp, by magnitude (allocation "global": over all layers)
    regenerate   each layer gives up its ceil(p * active) weakest weights and gains as many by the largest gradients,
                 p from 0.5 to 0.005 along half a cosine over the run

Dense-to-sparse is the default; `initial=0.5` starts from random masks of that sparsity, and the ramp leads from there
to the target (sparse-to-sparse). Grown weights start at 0, with momentum 0.

Different from the authors' program: the allocation shares the sparsity of the first masks as well as that of every
pruning (theirs begin by ERK and prune by one threshold over all layers: allocation="erk" does the first for both, the
default the second). Masks have exact counts, the last pruning comes with the ramp's last step so that
the target is met, and a network with too few weights left never becomes dense again. The optimizer gets the gradients
of active weights only; a norm clipped in a step that changes the masks includes the others. Sharded weights
(fully_shard) are refused, since a layer must be whole for the exchange.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor

from ..core.masks import MaskView, Moment, exchange_weakest
from ..core.method import METHODS, MaskMethod

__all__ = ["GraNet"]

LEAST = 0.005  # of the active weights that are exchanged at the end


@final
@METHODS.register("granet")
@dataclass(frozen=True)
class GraNet(MaskMethod):
    """Gradual magnitude pruning; with each pruning the weakest weights give way to others by gradient."""

    grows: ClassVar[bool] = True
    why_not_in_cycles: ClassVar[str] = (
        "it exchanges weights by gradient while a ramp rises, and a cycle has no ramp"
    )
    every: int = 1000  # steps between two changes
    exchange: float = 0.5  # part of the active weights, at first
    initial: float = 0.0  # sparsity to begin with
    seed: int = 0  # of the first masks, if there are any

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be at least 1 step, got {self.every}")
        if not LEAST <= self.exchange < 1:
            raise ValueError(
                f"exchange is a part of the active weights, from {LEAST} to below 1, got {self.exchange}"
            )
        if not 0 <= self.initial < 1:
            raise ValueError(f"initial is a sparsity, at least 0 and below 1, got {self.initial}")

    def first_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        scores = [
            torch.rand(v.weight.shape, generator=generator).to(v.weight.device) + 2.0**-24 for v in views
        ]
        return moment.largest(scores if self.initial else [v.weight for v in views], self._asked(moment))

    def is_due(self, moment: Moment) -> bool:
        if moment.arrives:
            return True
        return self._asked(moment) > 0 and moment.is_every(self.every) and moment.progress < 1.0

    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        kept = moment.largest([_strength(view) for view in views], self._asked(moment))
        pruned = [replace(v, mask=v.mask & mask) for v, mask in zip(views, kept, strict=True)]
        if moment.progress >= 1.0:
            return [view.mask for view in pruned]  # nothing could be learned any more
        part = LEAST + (self.exchange - LEAST) / 2 * (1 + math.cos(math.pi * moment.progress))
        return [_regenerated(view, part) for view in pruned]

    def _asked(self, moment: Moment) -> float:
        """The ramp rises from 0 to the target; here from the initial sparsity."""
        if self.initial >= moment.target:
            return moment.target
        return self.initial + (moment.target - self.initial) * moment.asked / moment.target


def _strength(view: MaskView) -> Tensor:
    """Magnitudes; weights that have grown and not moved yet come before zeroed ones, the first in order first."""
    place = torch.arange(view.weight.numel(), 0, -1, dtype=torch.float64, device=view.weight.device)
    return torch.where(view.mask, view.weight.abs().double() + 1e-30 * place.view(view.weight.shape), 0.0)


def _regenerated(view: MaskView, part: float) -> Tensor:
    assert view.gradient is not None
    active = int(view.mask.sum())
    return exchange_weakest(view, min(active, math.ceil(part * active)), view.gradient.abs())
