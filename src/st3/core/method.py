"""What a method is: two equations and what it remembers.

    sparse_weight   forward: what the parameter becomes, from the raw weight and the threshold
    raw_gradient    backward: dL/draw from dL/dsparse (default: the gradient itself, "straight-through")

A method is a frozen object that holds its settings and no state. What it remembers per weight lies in the optimizer's
state under the key `keeps`: the raw weight or, where zeroed weights are exactly 0, only the mask ("mask" if it is
fixed, "active" if it changes). The exchange (exchange.py) calls the equations, at moments that the conductor chooses;
thresholds come from the plan (plan.py), masks of N:M groups from the groups (groups.py).

What goes together with a method is declared here and checked in choices.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from ..registry import Registry
from .masks import MaskView, Moment
from .operators import hard
from .ramps import Ramp
from .selection import Scalar

__all__ = ["METHODS", "FixedMask", "GroupMethod", "HardThreshold", "MaskMethod", "Method", "ThresholdMethod"]


class Method(ABC):
    """A sparse-training method. Abstract; see `ThresholdMethod`."""

    keeps: ClassVar[Literal["raw", "mask", "active"]]
    usual_allocation: ClassVar[str] = "global"  # what it takes if nothing is said
    usual_ramp: ClassVar[str] = "cubic"
    usual_start: ClassVar[float] = 5 / 160  # of the ramp, as a part of the run
    usual_end: ClassVar[float] = 0.5
    only_ramps: ClassVar[tuple[str, ...]] = ()  # the ramps that make sense for it; empty: any
    only_allocations: ClassVar[tuple[str, ...]] = ()  # likewise
    why_only_ramps: ClassVar[str] = "keeps one sparsity from the first step to the last"
    why_only_allocations: ClassVar[str] = ""

    has_target: ClassVar[bool] = True  # False: its sparsity cannot be asked for, only found out
    why_not_in_cycles: ClassVar[str] = (
        ""  # why training in cycles (LRR) makes no sense for it; empty: it does
    )
    learns: ClassVar[str | None] = None  # the variable that it learns beside the weights, see learned.py
    passes: int = 1  # forward and backward passes that one step is meant to be made from

    @property
    def own_sparsity(self) -> float | None:
        """The target, where the settings of the method imply it."""
        return None

    def own_ramp(self, sparsity: float, total_steps: int) -> Ramp | None:
        """Return the ramp, where its times are settings of the method."""
        return None

    def slack(self, weights: int, sparsity: float) -> int:
        """Return how many of the zeros asked for may be missing, for a method whose count is random."""
        return 0

    def is_straight_through(self, sparsity: float) -> bool:
        """Tell whether the raw weight's gradient is the sparse weight's, unchanged, for this target sparsity."""
        return True

    def raw_gradient(self, grad: Tensor, active: Tensor, scale: Tensor | None, sparsity: float) -> Tensor:
        """Return dL/draw from `grad` = dL/dsparse; `active` is the mask, `scale` what `sparse_weight` returned.

        Depends on the current mask and scale only, linearly in `grad`: so it may be applied to every micro-batch, and
        clipping, accumulation and data-parallel averaging see the gradient that will be applied.
        """
        return grad

    def own_gradient(self, raw: Tensor, sparse: Tensor) -> Tensor | None:
        """Return what the method adds to dL/draw by itself, as weight decay does: once per step, after clipping."""
        return None


class ThresholdMethod(Method):
    """All raw weights live; a threshold decides what the forward path sees (ST-3, Feather, hard STE, ...)."""

    keeps: ClassVar[Literal["raw", "mask", "active"]] = "raw"

    @abstractmethod
    def sparse_weight(
        self, raw: Tensor, threshold: Scalar, filter_means: Callable[[Tensor], Tensor], out: Tensor
    ) -> Tensor | None:
        """Write the sparse weight of `raw` into `out`; return the factor per filter, if there is one.

        `filter_means(values)` is the mean over each filter, broadcastable. A weight at or below the threshold must
        become exactly 0. Rows of a weight may come in pieces: a filter's result must depend on that filter alone.
        """


@final
@dataclass(frozen=True)
class HardThreshold(ThresholdMethod):
    """What lies above the threshold stays as it is: for weights that have been trained already."""

    def sparse_weight(
        self, raw: Tensor, threshold: Scalar, filter_means: Callable[[Tensor], Tensor], out: Tensor
    ) -> Tensor | None:
        hard(raw, threshold, out=out)
        return None


class GroupMethod(Method):
    """All raw weights live; of every group of m along the inputs, n are active (SR-STE, S-STE).

    Tensors come in groups: their last axis is the group.
    """

    keeps: ClassVar[Literal["raw", "mask", "active"]] = "raw"
    usual_allocation: ClassVar[str] = "uniform"
    only_allocations: ClassVar[tuple[str, ...]] = ("uniform",)
    why_only_allocations: ClassVar[str] = "keeps n of every m weights in every layer"
    usual_ramp: ClassVar[str] = "constant"
    only_ramps: ClassVar[tuple[str, ...]] = ("constant",)
    why_not_in_cycles: ClassVar[str] = "its pattern fixes the sparsity, which cannot rise from cycle to cycle"
    has_scale: ClassVar[bool] = False  # one factor for the whole weight, fixed from the start
    n: int
    m: int

    def __post_init__(self) -> None:
        if not 0 < self.n < self.m:
            raise ValueError(
                f"of every m weights n stay: n must be at least 1 and below m, got {self.n}:{self.m}"
            )

    @final
    @property
    def own_sparsity(self) -> float:
        return 1.0 - self.n / self.m

    @abstractmethod
    def sparse_weight(self, raw: Tensor, active: Tensor, out: Tensor) -> None:
        """Write the sparse weight of `raw` into `out`; `active` is the mask of the n largest of every group."""

    def first_scale(self, raw: Tensor, sparse: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
        """Return that factor, if it `has_scale`, from the first weights; `total` sums over the whole weight."""
        return raw.new_ones(())


class MaskMethod(Method):
    """Zeroed weights are exactly 0 and get no gradient; now and then the masks change (GMP, RigL, GraNet, ...)."""

    keeps: ClassVar[Literal["raw", "mask", "active"]] = "active"
    grows: ClassVar[bool] = False  # needs the gradients of zeroed weights whenever the masks change
    replaces_step: ClassVar[bool] = False  # the optimizer does nothing in a step that changes the masks
    restores: ClassVar[bool] = False  # all weights, when the ramp falls back to 0

    @abstractmethod
    def is_due(self, moment: Moment) -> bool:
        """Tell whether the masks change in this step."""

    @abstractmethod
    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        """Return the new mask of every layer, from weights (0 where zeroed), masks and, if it `grows`, gradients."""

    def restarts(self, moment: Moment) -> bool:
        """Tell whether the optimizer's momentum is forgotten with the change of this step, of all its weights."""
        return False

    def first_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        """Return the masks to begin with: the largest weights, as many as the ramp leaves at step 0."""
        return moment.largest([view.weight for view in views], moment.asked)

    @final
    def is_straight_through(self, sparsity: float) -> bool:
        return False

    @final
    def raw_gradient(self, grad: Tensor, active: Tensor, scale: Tensor | None, sparsity: float) -> Tensor:
        return torch.where(active, grad, 0.0)


@final
@dataclass(frozen=True)
class FixedMask(Method):
    """The mask stays as it is; active weights train as usual, zeroed ones stay exactly 0."""

    keeps: ClassVar[Literal["raw", "mask", "active"]] = "mask"

    def is_straight_through(self, sparsity: float) -> bool:
        return False

    def raw_gradient(self, grad: Tensor, active: Tensor, scale: Tensor | None, sparsity: float) -> Tensor:
        return torch.where(active, grad, 0.0)  # not a product: inf * 0 would be NaN


METHODS: Registry[Callable[[], Method]] = Registry("method")
METHODS.hint("st3-sigma", "ST-3 sigma is method='st3' with allocation='sigma'")
