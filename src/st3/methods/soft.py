"""Soft thresholding on a sparsity ramp, without straight-through gradients: "STR" in the ST-3 paper's CIFAR plots.

    W_sparse = sign(W) * max(|W| - th, 0)                             forward
    dL/dW    = dL/dW_sparse * [|W| > th]                              backward: what autograd makes of it

A comparison of the ST-3 paper (Vanderschueren & De Vleeschouwer, WACV 2023) after STR (Kusupati et al., ICML 2020).
A zeroed weight keeps its raw value and is moved by momentum and weight decay alone, so it returns only if these, or a
falling threshold, bring it back.

Different from STR: its learned thresholds, one per layer, are replaced by ST-3's, one for all layers at the sparsity
that the cubic ramp asks for. So the target is met exactly.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from ..core.families.raw import WeightView
from ..core.families.thresholded import ThresholdMethod
from ..core.method import METHODS
from ..core.operators import soft

__all__ = ["Soft"]


@final
@METHODS.register("soft")
@dataclass(frozen=True)
class Soft(ThresholdMethod):
    """Soft thresholding without straight-through gradients: the "STR" of the paper's CIFAR plots."""

    def sparse_weight(self, view: WeightView) -> None:
        soft(view.raw, view.threshold, out=view.sparse)

    def is_straight_through(self, sparsity: float) -> bool:
        return False

    def why_not_in_blocks(self, sparsity: float) -> str:
        return ""  # its gradient is the derivative of its forward equation

    def raw_gradient(self, grad: Tensor, view: WeightView) -> Tensor:
        return torch.where(view.active, grad, 0.0)
