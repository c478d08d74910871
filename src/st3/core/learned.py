"""Methods that learn something beside the weights: what they must say of it.

    LearnedThreshold   one number per layer, from which the layer's threshold follows; no target sparsity
    RandomMask         one probability per weight: training draws masks, evaluation takes the most probable weights

When their variables are used, learned and saved is the business of learned_thresholds.py, mask_search.py and
variables.py.
"""

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from .method import Method, ThresholdMethod

__all__ = ["LearnedMethod", "LearnedThreshold", "RandomMask"]


class LearnedMethod(Method):
    """A method that learns variables of its own beside the raw weights."""

    keeps: ClassVar[Literal["raw", "mask", "active"]] = "raw"

    @abstractmethod
    def first_variable(self, raw: Tensor) -> Tensor:
        """Return the variable of a layer to begin with."""

    def is_straight_through(self, sparsity: float) -> bool:
        return False


class LearnedThreshold(LearnedMethod, ThresholdMethod):
    """One learned number per layer, from which its threshold follows. There is no ramp and no target."""

    has_target: ClassVar[bool] = False
    why_not_in_cycles: ClassVar[str] = "it learns its thresholds, so that a cycle cannot ask for a sparsity"
    learns: ClassVar[str | None] = "threshold"
    weight_decay: float | None  # of the learned number; None: that of the layer's weights

    @abstractmethod
    def threshold(self, variable: Tensor) -> Tensor:
        """Return the threshold, a 0-dim tensor."""

    @abstractmethod
    def variable_gradient(self, grad: Tensor, sparse: Tensor, variable: Tensor) -> Tensor:
        """Return dL/dvariable from the gradient of the raw weight and the sparse weight, summed over these two."""

    def begins_sparse(self) -> bool:
        """Tell whether the first threshold zeroes anything, before the first step."""
        return bool(self.threshold(self.first_variable(torch.zeros(1))) > 0)


class RandomMask(LearnedMethod):
    """One learned probability per weight to be active; every forward pass of training draws masks.

    The masks are relaxed, numbers between 0 and 1, so that probabilities get a gradient. At `search_steps` the search
    is over: the masks become fixed, and the weights train on.
    """

    only_allocations: ClassVar[tuple[str, ...]] = ("global",)
    why_only_allocations: ClassVar[str] = (
        "learns how the sparsity is shared among the layers, within one budget"
    )
    learns: ClassVar[str | None] = "probability"
    seed: int

    @abstractmethod
    def search_steps(self, total_steps: int) -> int:
        """Return the step after which the masks are fixed."""

    @abstractmethod
    def relaxed_mask(self, probability: Tensor, uniform: Tensor, progress: float) -> Tensor:
        """Return a mask drawn by these uniform random numbers; `progress` is the part of the search that is over."""

    @abstractmethod
    def slope(self, mask: Tensor, probability: Tensor, progress: float) -> Tensor:
        """Return d mask / d probability of a mask that `relaxed_mask` has returned."""

    @abstractmethod
    def settings(self, progress: float) -> dict[str, float]:
        """Return the settings of Adam, which moves the probabilities."""

    def final_mask(self, probability: Tensor, best: Tensor, uniform: Tensor) -> Tensor:
        """Return the mask to be fixed; `best` is that of the most probable weights, as many as the target leaves."""
        return best
