"""ST-3: "Are straight-through gradients and soft-thresholding all you need for sparse training?"
(Vanderschueren & De Vleeschouwer, WACV 2023, section 3).

    W_sparse = scale * sign(W) * max(|W| - th, 0)                     forward
    dL/dW    = dL/dW_sparse                                           backward: straight-through
    scale_j  = sum_i |W_ji| / sum_i |W_ji| [|W_ji| > th]              one factor per output filter j

`th` is the threshold of the layer, recomputed after every optimizer step: the quantile of all magnitudes at the
sparsity that the ramp asks for (allocation "global"), or of magnitude * factor (ST-3 sigma: allocation "sigma").

The three switches are the ablation of the paper's figure 5; all on is the method:

    A1  hard thresholding, straight-through              ST3(soft=False, rescale=False)
    A2  the same with rescale                            ST3(soft=False)
    A3  soft thresholding, straight-through              ST3(rescale=False)
    A4  ST-3                                             ST3()
    A5  soft without straight-through, +- rescale        ST3(straight_through=False), ST3(rescale=False, ...)

Followed directly by batch norm in training mode, the rescale leaves the layer's output unchanged and divides its
gradient by the scale: there it acts as a smaller learning rate for sparse filters.

Different from the paper: the rescale is the bounded form of the authors' program, 1.01 / (r + 0.01) with r the kept
part of the filter's magnitude, at most 101 where 1/r would be infinite; `exact_rescale=True` is the paper's formula.
The kept part is that of the raw weights (hard-thresholded) even where the forward path is soft, as in the paper.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from ..core.families.raw import WeightView
from ..core.families.thresholded import ThresholdMethod
from ..core.method import METHODS
from ..core.operators import bounded_scale, exact_scale, hard, keep_above, soft

__all__ = ["ST3"]


@final
@METHODS.register("st3")
@dataclass(frozen=True)
class ST3(ThresholdMethod):
    """Soft thresholding + straight-through gradients + filter rescaling, each of them a switch."""

    soft: bool = True  # soft thresholding; hard if not
    rescale: bool = True  # one factor per filter
    straight_through: bool = True  # the gradient reaches zeroed weights
    exact_rescale: bool = False  # the paper's 1/r instead of the bounded form

    def __post_init__(self) -> None:
        if self.exact_rescale and not self.rescale:
            raise ValueError("exact_rescale=True has no effect with rescale=False: drop one of the two")

    def sparse_weight(self, view: WeightView) -> None:
        shrink = soft if self.soft else hard
        shrink(view.raw, view.threshold, out=view.sparse)
        if self.rescale:
            magnitude = view.raw.abs()
            mean = view.filter_means(magnitude)
            kept_mean = view.filter_means(keep_above(magnitude, view.threshold))
            view.scale = (
                exact_scale(mean, kept_mean) if self.exact_rescale else bounded_scale(mean, kept_mean)
            )
            view.sparse.mul_(view.scale)

    def is_straight_through(self, sparsity: float) -> bool:
        return self.straight_through

    def why_not_in_blocks(self, sparsity: float) -> str:
        return ""  # straight-through, or the derivative of the forward equation

    def raw_gradient(self, grad: Tensor, view: WeightView) -> Tensor:
        if self.straight_through:
            return grad
        # What autograd makes of scale * soft(W): zeroed weights get nothing, the scale is a constant.
        masked = torch.where(view.active, grad, 0.0)
        return masked if view.scale is None else masked * view.scale
