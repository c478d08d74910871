"""S-STE: continuous 2:4 sparsity by a soft threshold in every group (Hu et al., NeurIPS 2024).

    W_sparse = scale * sign(W) * max(|W| - th_g, 0)                   forward, th_g the largest zeroed |W| of the group
    dL/dW    = dL/dW_sparse                                           backward: straight-through
    scale    = <W, S> / <S, S>,  S = W_sparse without scale           one number per weight, from its first values

ST-3 for N:M sparsity: where two weights of a group change places, both are near 0, so the sparse weight moves
continuously with the raw one. Groups are m consecutive inputs of one output at one place of the kernel, as for SR-STE;
layers whose input channels m does not divide stay dense. The scale brings the soft-thresholded weight nearest to the
raw one, and stays as it was found at the start. Two equal magnitudes at a group's threshold are both zeroed.

Different from the authors' program, which pre-trains transformers on 2:4 hardware: convolutions are covered, and any
n:m; its savings in the backward pass (sampled gradients, FP8) are no part of this.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..core.families.grouped import GroupMethod
from ..core.method import METHODS
from ..core.operators import soft

__all__ = ["SSTE"]


@final
@METHODS.register("s_ste")
@dataclass(frozen=True)
class SSTE(GroupMethod):
    """A soft threshold in every group of m weights along the inputs (2:4), straight-through; one fixed scale."""

    has_scale: ClassVar[bool] = True
    n: int = 2  # active weights per group
    m: int = 4  # weights per group

    def sparse_weight(self, raw: Tensor, active: Tensor, out: Tensor) -> None:
        threshold = raw.abs().masked_fill_(active, 0.0).amax(-1, keepdim=True)
        soft(raw, threshold, out=out)

    def first_scale(self, raw: Tensor, sparse: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
        square = total(sparse * sparse)
        return torch.where(square > 0, total(raw * sparse) / square, 1.0)  # a layer may begin at 0
