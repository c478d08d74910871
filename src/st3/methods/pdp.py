"""PDP: parameter-free differentiable pruning (Cho, Adya & Naik, NeurIPS 2023).

    m        = sigmoid((W^2 - t^2) / tau)                             the chance of W to be kept rather than dropped
    W_sparse = W * m                                                  forward in training
             = W * [|W| > t]                                          in evaluation, between steps, and at the end
    dL/dW    = dL/dW_sparse * (m + 2 W^2 / tau * m (1 - m))           backward: through the sigmoid, t a constant

t lies half-way between the smallest weight to be kept and the largest to be dropped, in every layer. All weights get a
gradient, and those near t get the most, which pushes them to one side or the other.

How many weights each layer loses at the target is fixed when the ramp begins: by one threshold over all layers then
(allocation "global"). The ramp is that of a published setting of 100 epochs, in parts of the run: nothing in the first
16, then another 0.015 of the target with each epoch.

What the model holds: between steps, and in every pass without gradients or in evaluation mode, plain sparse weights,
with exactly as many zeros as the ramp asks for. From a forward pass in training to the next `optimizer.step` it holds
W * m, in which hardly a weight is exactly 0. Save between steps. Gradients from a pass in evaluation mode go to the
weights that are kept alone. The gradient at t grows with t^2 / tau: where weights are larger than those of an ImageNet
network, raise tau. Clipping does not help: it shrinks the gradients of all other weights along with those near t.

Sources: no program of the authors was found, so the settings were compared with other implementations. PQuantML (CERN)
has the same mask, threshold and shares, 0.015 per epoch and tau = 1e-5, but lets gradients through t as well. Another
one waits 16 epochs, with 0.015 per epoch and tau = 1e-4.

Different from the paper: the ramp rises with every step instead of every epoch. Channels and N:M groups are not pruned
as a whole.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..core.families.raw import WeightView
from ..core.families.soft_mask import SoftMask
from ..core.method import METHODS
from ..core.selection.select import Scalar

__all__ = ["PDP"]

# Fainter masks become 0. They change nothing, but a few weights below the smallest normal number make a convolution
# on a CPU two to three times as slow.
FAINT = 1e-20


@final
@METHODS.register("pdp")
@dataclass(frozen=True)
class PDP(SoftMask):
    """A soft mask from the weights' own magnitudes, with its gradient; hard whenever the model is not training."""

    usual_ramp: ClassVar[str] = "linear"
    usual_times: ClassVar[tuple[float, float] | None] = (0.16, 0.827)
    tau: float = 1e-5  # temperature: how gradually the mask rises from 0 to 1 around the threshold

    def __post_init__(self) -> None:
        if not 0 < self.tau < math.inf:
            raise ValueError(f"tau must be above 0 and finite, got {self.tau:g}")

    def soft_mask(self, raw: Tensor, threshold: Scalar) -> Tensor:
        wide = raw.to(torch.promote_types(raw.dtype, torch.float32))
        mask = torch.sigmoid((wide.square() - threshold * threshold) / self.tau)
        return torch.where(mask < FAINT, 0.0, mask)

    def raw_gradient(self, grad: Tensor, view: WeightView) -> Tensor:
        mask = self.soft_mask(view.raw, view.threshold)
        return grad * (mask + 2 * view.raw.to(mask.dtype).square() / self.tau * mask * (1 - mask))
