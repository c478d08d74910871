"""AC/DC: alternating compressed and decompressed training (Peste, Iofinova, Vladu & Alistarh, NeurIPS 2021).

    W_sparse = W * mask                                               forward
    dL/dW    = dL/dW_sparse * mask                                    backward
    mask    <- |W| > th                                               at the start of every sparse phase
    mask    <- 1                                                      at the start of every dense phase

Training is dense at first, then sparse and dense in turn, and sparse at the end. A sparse phase begins with the largest
weights (of all layers together: allocation "global"); the others are 0 and get no gradient. With a dense phase all
return, from 0, and the optimizer forgets its momentum. The phases are parts of the run, whatever its length: the
defaults are the authors' for ImageNet (100 epochs: dense to 10, then 5 sparse and 5 dense in turn, dense from 75 to 85,
sparse to the end); theirs for CIFAR-100 (200 epochs, phases of 20) are
ACDC(warm_up=0.05, until=0.85, rounds=4, rest=1).

Different from the authors' program: nothing is added to magnitudes, and exactly as many weights are zero as asked for;
with Adam, its count of steps starts over with its moments, so that they are corrected for their zeros again. The dense
model that the authors get besides, at the end of the last dense phase, is a checkpoint of that time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..core.families.mask_view import MaskView, Moment
from ..core.families.masked import MaskMethod
from ..core.method import METHODS
from ..ramps.phases import Phases

__all__ = ["ACDC"]


@final
@METHODS.register("acdc")
@dataclass(frozen=True)
class ACDC(MaskMethod):
    """Sparse and dense phases in turn: the smallest weights go at the start of one and return at 0 in the next."""

    usual_ramp: ClassVar[str] = "phases"
    only_ramps: ClassVar[tuple[str, ...]] = ("phases",)
    why_only_ramps: ClassVar[str] = "brings a ramp of its own"
    why_not_in_cycles: ClassVar[str] = "it alternates dense and sparse phases, and a cycle keeps one sparsity"
    restores: ClassVar[bool] = True
    warm_up: float = 0.1  # part of the run before the first sparse phase
    until: float = 0.85  # part of the run before the last sparse phase
    rounds: int = 7  # sparse phases before the last one
    rest: int = 2  # length of the last dense phase, in phases

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up < self.until <= 1:
            raise ValueError(
                f"warm_up and until are parts of the run, the first before the second, "
                f"got {self.warm_up} and {self.until}"
            )
        _ = self.own_ramp  # refuses rounds and rests that make no sense

    @property
    def own_ramp(self) -> Phases:
        return Phases(self.warm_up, self.until, self.rounds, self.rest)

    def why_not_in_blocks(self, sparsity: float) -> str:
        return ""  # all its masks come from `moment.largest`

    def is_due(self, moment: Moment) -> bool:
        return moment.asked != moment.asked_before

    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        if self.restarts(moment):
            return [torch.ones_like(view.mask) for view in views]
        return moment.largest([view.weight for view in views], moment.asked)

    def restarts(self, moment: Moment) -> bool:
        return moment.asked == 0.0
