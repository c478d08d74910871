"""DNW: discovering neural wirings (Wortsman, Farhadi & Rastegari, NeurIPS 2019), as a method for sparse training.

    W_sparse = W * [|W| > th_l]                                       forward, th_l the layer's own quantile
    dL/dW    = dL/dW_sparse                                           backward: straight-through

Every layer has the same sparsity from the first step to the last. The authors' better results keep the first layer
dense: exclude=st3.FIRST. Other allocations and ramps are arguments of `sparsify`.

Different from the authors' program: channels-last weights are zeroed as well (there they silently are not), and the
sparse weight follows the optimizer's step instead of being found in every forward pass, which is the same. All layers
together lose floor((n - 1) S) + 1 of their n weights, shared equally and rounded; there each layer loses int(S n).
"""

from dataclasses import dataclass
from typing import ClassVar, final

from ..core.families.raw import WeightView
from ..core.families.thresholded import ThresholdMethod
from ..core.method import METHODS
from ..core.operators import hard

__all__ = ["DNW"]


@final
@METHODS.register("dnw")
@dataclass(frozen=True)
class DNW(ThresholdMethod):
    """Hard top-k of every layer with straight-through gradients, at constant sparsity."""

    usual_allocation: ClassVar[str] = "uniform"
    usual_ramp: ClassVar[str] = "constant"

    def sparse_weight(self, view: WeightView) -> None:
        hard(view.raw, view.threshold, out=view.sparse)
