"""SR-STE: N:M sparsity with a sparse-refined straight-through estimator (Zhou et al., ICLR 2021).

    W_sparse = W * [|W| among the n largest of its group]             forward, groups of m along the inputs
    dL/dW    = dL/dW_sparse + decay * (W - W_sparse)                  backward: and zeroed weights decay

The groups are m consecutive input channels of one output at one place of the kernel (for a linear layer, m inputs). The
same from the first step to the last: no ramp, no allocation, a sparsity of 1 - n/m. Layers whose input channels m does
not divide stay dense, such as a first convolution of 3 channels; the report says so. The decay keeps a zeroed weight
from growing until it changes places with an active one, only to be pushed back.

Different from the authors' program: the decay is added once per optimizer step, like weight decay, whatever the number
of micro-batches, the loss scale or the clipping (there it is a part of every backward pass); layers whose groups would
straddle kernel positions stay dense; the classifier is covered unless `exclude=st3.LAST` says otherwise, as the
authors do for ResNet.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from ..core.families.grouped import GroupMethod
from ..core.families.raw import WeightView
from ..core.method import METHODS

__all__ = ["SRSTE"]


@final
@METHODS.register("sr_ste")
@dataclass(frozen=True)
class SRSTE(GroupMethod):
    """The n largest of every m weights along the inputs (2:4), straight-through; zeroed weights decay."""

    n: int = 2  # active weights per group
    m: int = 4  # weights per group
    decay: float = 2e-4  # of zeroed weights

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decay < 0:
            raise ValueError(f"decay must not be negative, got {self.decay}")

    def sparse_weight(self, raw: Tensor, active: Tensor, out: Tensor) -> None:
        torch.where(active, raw, raw.new_zeros(()), out=out)

    def own_gradient(self, view: WeightView) -> Tensor | None:
        return (view.raw - view.sparse).mul_(self.decay) if self.decay else None
