"""Constant sparsity from random masks: RigL, SET and a mask that never changes.

Each class has its page in its docstring. All share the first masks, RigL and SET the exchange: every `every` steps each
layer gives up its k weakest weights and gains as many others. All positions that are not kept may grow, just dropped
ones too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from ..core.choices import check_count
from ..core.families.mask_view import MaskView, Moment, exchange_weakest, random_scores
from ..core.families.masked import MaskMethod
from ..core.method import METHODS

__all__ = ["SET", "RigL", "Static"]


class _ConstantSparsity(MaskMethod):
    """Random masks to begin with, of the same size from the first step to the last."""

    usual_allocation: ClassVar[str] = "uniform"
    usual_ramp: ClassVar[str] = "constant"
    only_by_shape: ClassVar[bool] = True
    why_only_allocations: ClassVar[str] = (
        "begins with random masks, which carry no information about which layers matter"
    )
    only_ramps: ClassVar[tuple[str, ...]] = ("constant",)
    why_not_in_cycles: ClassVar[str] = (
        "it begins each cycle with random masks, whatever the last one has learned"
    )
    seed: int

    @final
    def first_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        return moment.largest(random_scores(views, self.seed, 0), moment.target)


@final
@METHODS.register("rigl")
@dataclass(frozen=True)
class RigL(_ConstantSparsity):
    """Constant sparsity; the weakest weights give way to those with the largest gradients.

    "Rigging the lottery: making all tickets winners" (Evci, Gale, Menick, Castro & Elsen, ICML 2020).

        W_sparse = W * mask                                           forward
        dL/dW    = dL/dW_sparse * mask                                backward
        mask    <- keep the active - k largest |W|, grow the k largest |dL/dW_sparse| among all others
        k        = drop / 2 * (1 + cos(pi * step / end)) * active     end = until * steps of the run

    The masks are random at first and never grow larger. Every `every` steps (and at least 20 times per
    run), until the fraction `until` of the run, each layer exchanges its k weakest weights by the gradient of the
    current batch. A grown weight starts at 0 with momentum 0; one that is dropped and grown in the same step keeps
    both. The exchange replaces the optimizer's step of that batch, which then does nothing.

    The paper's two allocations are allocation="uniform" with exclude=st3.FIRST and allocation="erk" (RigL+ERK).

    Different from the authors' program: ties among weights go by position instead of a little noise; the first exchange
    comes with step `every`, not before the first step; the replaced step counts as a step of the run; `until` is 0.75,
    where they stop after 25,000 of 32,000 steps (ImageNet) and 75,000 of 97,656 (CIFAR). All layers together have
    floor((n - 1) S) + 1 zeros in n weights, shared by the allocation and rounded; there each layer has floor(s n).
    Gradients are those that reach `optimizer.step`: averaged over processes and micro-batches. Sharded weights
    (fully_shard) are refused, since a layer must be whole for the exchange.
    """

    grows: ClassVar[bool] = True
    replaces_step: ClassVar[bool] = True
    every: int = 100  # steps between two changes
    drop: float = 0.3  # part of the active weights, at first
    until: float = 0.75  # part of the run
    seed: int = 0  # of the first masks

    def __post_init__(self) -> None:
        _check(self.every, self.drop, self.until)

    def is_due(self, moment: Moment) -> bool:
        return moment.is_every(self.every) and moment.progress <= self.until and moment.progress < 1.0

    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        return _exchange(views, self.drop, moment, self.until, [_strength(view) for view in views])


@final
@METHODS.register("set")
@dataclass(frozen=True)
class SET(_ConstantSparsity):
    """Constant sparsity; the weakest weights give way to random ones.

    "Scalable training of artificial neural networks with adaptive sparse connectivity inspired by network science"
    (Mocanu, Mocanu, Stone, Nguyen, Gibescu & Liotta, Nature Communications 2018).

        W_sparse = W * mask                                           forward
        dL/dW    = dL/dW_sparse * mask                                backward
        mask    <- keep the active - k largest |W|, grow k random ones among all others
        k        = drop / 2 * (1 + cos(pi * step / end)) * active     end = until * steps of the run

    As RigL, but what grows is random. The random numbers depend on `seed` and the step alone, so that all processes
    draw the same ones and torch's own are not touched.

    Different from the original, as in RigL's comparison: the part that layers exchange falls along a cosine instead of
    being constant, they exchange it every `every` steps instead of every epoch, and convolutions are covered. The
    exchange comes after the optimizer's step and does not replace it, since no gradient is needed.
    """

    every: int = 100  # steps between two changes
    drop: float = 0.3  # part of the active weights, at first
    until: float = 0.75  # part of the run
    seed: int = 0  # of the first masks, and of the random growth

    def __post_init__(self) -> None:
        _check(self.every, self.drop, self.until)

    def is_due(self, moment: Moment) -> bool:
        return moment.is_every(self.every) and moment.progress <= self.until and moment.progress < 1.0

    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        growth = random_scores(views, self.seed, moment.step)
        return _exchange(views, self.drop, moment, self.until, growth)


@final
@METHODS.register("static")
@dataclass(frozen=True)
class Static(_ConstantSparsity):
    """A random mask that never changes: what the others are compared with.

    The "static" baseline of RigL (Evci et al., ICML 2020).

        W_sparse = W * mask                                           forward
        dL/dW    = dL/dW_sparse * mask                                backward

    Different from RigL's only in the counts: all layers together have floor((n - 1) S) + 1 zeros in n weights, shared
    by the allocation and rounded, at random places; there each layer has floor(s n).
    """

    seed: int = 0  # of the masks

    def is_due(self, moment: Moment) -> bool:
        return False

    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        return [view.mask for view in views]


def _check(every: int, drop: float, until: float) -> None:
    check_count(every, "every", least=1, meaning="a number of steps")
    if not 0 < drop < 1:
        raise ValueError(f"drop is a part of the active weights, above 0 and below 1, got {drop}")
    if not 0 < until <= 1:
        raise ValueError(f"until is a part of the run, above 0 and at most 1, got {until}")


def _exchange(
    views: Sequence[MaskView], drop: float, moment: Moment, until: float, growth: Sequence[Tensor | None]
) -> list[Tensor]:
    part = drop / 2 * (1 + math.cos(math.pi * moment.progress / until))
    counts = [int(part * int(view.mask.sum())) for view in views]
    return [
        view.mask if scores is None else exchange_weakest(view, count, scores)
        for view, count, scores in zip(views, counts, growth, strict=True)
    ]


def _strength(view: MaskView) -> Tensor | None:
    """Magnitudes of the gradient; a layer that has none in this step keeps its mask."""
    return None if view.gradient is None else view.gradient.abs()
