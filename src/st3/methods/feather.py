"""Feather (Glentis Georgoulakis, Retsinas & Maragos, BMVC 2023): a threshold between soft and hard.

    W_sparse = sign(W) * max(|W|^p - th^p, 0)^(1/p)                   forward, p = 3
    dL/dW    = dL/dW_sparse                where |W| > th             backward
             = theta * dL/dW_sparse        elsewhere

theta is 1 for targets up to 95 % and 0.5 above; no rescale. Same thresholds as ST-3. The larger a weight, the
less it is shrunk: p = 1 is soft thresholding, p towards infinity hard. The ramp is the authors': cubic, from the first
step to the middle of the run.

Different from the authors' program: the threshold moves after the optimizer step, so that evaluation always agrees with
it, instead of before the next forward pass. Both give every forward pass the same weights.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..core.families.raw import WeightView
from ..core.families.thresholded import ThresholdMethod
from ..core.method import METHODS
from ..core.operators import feather

__all__ = ["Feather"]


@final
@METHODS.register("feather")
@dataclass(frozen=True)
class Feather(ThresholdMethod):
    """The p-th-power threshold with damped gradients for zeroed weights; `theta=None` is the authors' rule."""

    usual_times: ClassVar[tuple[float, float] | None] = (0.0, 0.5)
    power: float = 3.0  # p
    theta: float | None = None  # part of the gradient that zeroed weights get; None: by the target

    def __post_init__(self) -> None:
        if self.power <= 0:
            raise ValueError(f"power must be above 0, got {self.power}")
        if self.theta is not None and not 0.0 <= self.theta <= 1.0:
            raise ValueError(f"theta must lie between 0 and 1, got {self.theta}")

    def sparse_weight(self, view: WeightView) -> None:
        feather(view.raw, view.threshold, self.power, out=view.sparse)

    def damping(self, sparsity: float) -> float:
        """Return theta for this target sparsity."""
        if self.theta is not None:
            return self.theta
        return 1.0 if sparsity <= 0.95 else 0.5

    def is_straight_through(self, sparsity: float) -> bool:
        return self.damping(sparsity) == 1.0

    def why_not_in_blocks(self, sparsity: float) -> str:
        return (
            ""
            if self.is_straight_through(sparsity)
            else "damps the gradients of single weights (theta=1.0 would not)"
        )

    def raw_gradient(self, grad: Tensor, view: WeightView) -> Tensor:
        return torch.where(view.active, grad, grad * self.damping(view.sparsity))
