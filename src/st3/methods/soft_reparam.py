"""STR: soft threshold reparameterization (Kusupati et al., ICML 2020).

    W_sparse = sign(W) * max(|W| - sigmoid(s), 0)                     forward, one learned number s per layer
    dL/dW    = dL/dW_sparse * [|W| > sigmoid(s)]                      backward: what autograd makes of it
    dL/ds    = -sigmoid'(s) * sum(sign(W) * dL/dW_sparse over active weights)

There is no ramp and no target: what sparsity comes out cannot be asked for, only found out. `s` begins where sigmoid
and its slope are 0 in float32 and rises by weight decay alone (with the authors' 2.25e-5 and learning rate .256 it
needs 20 of 100 epochs); from about -100 on the loss has a say. So `init` and `weight_decay` decide when sparsity
appears and how much. `init` was -3200 for ResNet-50, -12800 for MobileNetV1. A short run needs a later start and a
stronger decay: for the digits, 30 epochs at a learning rate of 0.1, STR(init=-8, weight_decay=0.035) came to 90 % zeros
and 0.07 to 98 %.

`s` is moved by the same kind of optimizer as the weights (SGD, Adam or AdamW), with the learning rate and momentum of
the layer's group and, unless `weight_decay` says otherwise, its decay: as if it were a parameter among them. Its
gradient comes from that of the weight as `optimizer.step` gets it. Different from the authors' program: a norm that is
clipped does not include the gradients of `s`, but these are clipped along with those of the weights.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from ..core.families.learned_threshold import LearnedThreshold
from ..core.families.raw import WeightView
from ..core.method import METHODS
from ..core.operators import soft

__all__ = ["STR"]


@final
@METHODS.register("str")
@dataclass(frozen=True)
class STR(LearnedThreshold):
    """Soft thresholding with one learned threshold per layer; no target sparsity."""

    init: float = -3200.0  # of s, in every layer
    weight_decay: float | None = None  # of s; None: as the layer's weights

    def __post_init__(self) -> None:
        if self.weight_decay is not None and self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay:g}")

    def first_variable(self, raw: Tensor) -> Tensor:
        return raw.new_full((), self.init)

    def learned_threshold(self, variable: Tensor) -> Tensor:
        return torch.sigmoid(variable)

    def sparse_weight(self, view: WeightView) -> None:
        soft(view.raw, view.threshold, out=view.sparse)

    def raw_gradient(self, grad: Tensor, view: WeightView) -> Tensor:
        return torch.where(view.active, grad, 0.0)

    def variable_gradient(self, grad: Tensor, sparse: Tensor, variable: Tensor) -> Tensor:
        size = torch.sigmoid(variable)
        return -size * (1 - size) * (torch.sign(sparse) * grad).sum()
