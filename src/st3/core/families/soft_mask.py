"""Methods whose masks are soft while the model learns and hard whenever it is looked at (PDP).

    a forward pass in training   the parameters hold raw weight * soft mask from here on; no weight is exactly 0
    its backward pass            the gradient goes through weight and mask
    after the step               the parameters hold plain sparse weights again: those at or below the threshold are 0

A pass is one in training if the model is in training mode and gradients are recorded; any other pass finds the plain
sparse weights. So do checkpoints between steps, reports and the finished model: zeros are counted with the hard mask.

How many weights each layer loses at the target is fixed when the ramp begins, by the allocation and the weights of that
moment, and remembered; the ramp then asks every layer for the same part of that number.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..budget.allocation import Allocation, Cut, Pool
from ..budget.plan import Plan
from ..budget.ties import kept_masks
from ..layers.layer import Layer
from ..layers.shards import is_sharded
from ..operators import hard
from ..selection.select import Quota, Scalar, threshold_between
from ..state.store import RAW, ZEROS, Store
from .raw import WeightView
from .thresholded import CutFamily, ThresholdMethod, cut_copies

__all__ = ["SoftMask", "SoftMasks"]


class SoftMask(ThresholdMethod):
    """A method with a soft mask in training; its backward equation, `raw_gradient`, belongs to that mask."""

    @abstractmethod
    def soft_mask(self, raw: Tensor, threshold: Scalar) -> Tensor:
        """Return the mask, from 0 to 1, of raw weights; `threshold` lies half-way between kept and dropped ones."""

    def sparse_weight(self, view: WeightView) -> None:
        hard(view.raw, view.threshold, out=view.sparse)

    def is_straight_through(self, sparsity: float) -> bool:
        return sparsity == 0.0

    def why_not_in_blocks(self, sparsity: float) -> str:
        return "has soft masks for single weights"


@final
class SoftMasks(CutFamily[SoftMask]):
    """Puts soft masks on for forward passes in training."""

    draws_masks: ClassVar[bool] = True
    keeps: ClassVar[str] = (
        f"{CutFamily.keeps}; from the ramp's first step on, the number of zeros of the layer at the target, `'{ZEROS}'`"
    )

    def __init__(self, method: SoftMask, layers: Sequence[Layer], store: Store, plan: Plan) -> None:
        super().__init__(method, layers, store, plan)
        self._soft: set[str] = set()  # layers whose parameters hold softly masked weights now
        self._zeros: dict[str, int] = {}  # of every layer at the target, once fixed

    @classmethod
    def check(
        cls, method: SoftMask, layers: Sequence[Layer], optimizers: Sequence[Optimizer], plan: Plan
    ) -> None:
        if any(is_sharded(layer.parameter) for layer in layers):
            raise ValueError(
                f"{type(method).__name__} changes the weights right before a forward pass, for which fully_shard has "
                f"gathered them already: train it with DistributedDataParallel instead"
            )

    # ---------------------------------------------------------------- thresholds

    def find_cuts(self) -> Sequence[Cut | None]:
        return self._cuts(self.layers, [self.raw(layer) for layer in self.layers], self.store.step)

    def _cuts(self, layers: Sequence[Layer], raws: Sequence[Tensor], step: int) -> list[Cut | None]:
        """Return where to cut each layer: half-way between the largest weight dropped and the smallest kept."""
        asked = self.plan.asked(step)
        if not asked:
            return [None] * len(layers)
        found = self.plan.cuts_at(layers, raws, asked, _Remembered(self._zeros_at_target(layers, raws)))
        return [_in_the_middle(cut, raw) for cut, raw in zip(found, raws, strict=True)]

    def _zeros_at_target(self, layers: Sequence[Layer], raws: Sequence[Tensor]) -> dict[str, int]:
        """Return how many weights each layer loses at the target; asked for the first time, fix it."""
        if not self._zeros:
            held: dict[str, int] = {
                layer.name: self.store.held(layer)[ZEROS]
                for layer in self.layers
                if ZEROS in self.store.held(layer)
            }
            if len(held) < len(self.layers):
                cuts = self.plan.cuts_at(layers, raws, self.plan.sparsity)
                masks = kept_masks(layers, cuts, raws, are_masks=False)
                held = {x.name: int((~mask).sum()) for x, mask in zip(layers, masks, strict=True)}
                for layer in self.layers:
                    self.store.put(layer, ZEROS, held[layer.name])
            self._zeros = held
        return self._zeros

    def follow_loaded_state(self, optimizer: Optimizer) -> None:
        self._zeros, self._soft = {}, set()
        super().follow_loaded_state(optimizer)

    def sparsify_copy(self, copies: Sequence[Layer], step: int) -> None:
        """Give the copies thresholds of their own: the largest magnitudes stay as they are."""
        raws = [copied.weight.clone() for copied in copies]
        cut_copies(copies, raws, self._cuts(copies, raws, step))

    # ---------------------------------------------------------------- passes

    def before_forward(self, model: nn.Module) -> None:
        if model.training and torch.is_grad_enabled():
            self._soften()
        else:
            self.rest()

    @torch.no_grad()
    def _soften(self) -> None:
        layers = [x for x in self.layers if not self.is_dense(x) and x.name not in self._soft]
        self.refuse_replaced(layers)
        for layer in layers:
            layer.weight.copy_(self._soft_weight(layer))
            self.store.note(layer, self.store.get(layer, RAW))
            self._soft.add(layer.name)

    def _soft_weight(self, layer: Layer) -> Tensor:
        cut, raw = self.cuts[layer.name], self.raw(layer)
        assert cut is not None
        return raw * self.method.soft_mask(raw, cut.threshold)

    def rest(self) -> None:
        if self._soft:
            self.refuse_replaced([layer for layer in self.layers if layer.name in self._soft])
            self.write(self.layers)

    def write(self, layers: Sequence[Layer]) -> None:
        super().write(layers)
        self._soft -= {layer.name for layer in layers}

    def raw_gradient(self, layer: Layer, grad: Tensor) -> Tensor:
        """Return the raw weight's gradient, through the mask that the pass has seen."""
        if self.is_dense(layer) or layer.name in self._soft:
            return super().raw_gradient(layer, grad)
        return torch.where(layer.weight != 0, grad, 0.0)  # from a pass in evaluation mode

    def is_expected(self, layer: Layer, found: Tensor) -> bool:
        if layer.name in self._soft:
            return torch.equal(found, self._soft_weight(layer).to(found.dtype))
        return super().is_expected(layer, found)


SoftMask.family = SoftMasks


@final
@dataclass(frozen=True)
class _Remembered(Allocation):
    """The shares of the layers that were fixed when the ramp began."""

    zeros: dict[str, int]

    def cut(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        mine = [self.zeros[layer.name] for layer in pool.layers]
        return pool.cut_by_counts([zeros * quota.zeros / max(1, sum(mine)) for zeros in mine], quota)


def _in_the_middle(cut: Cut | None, raw: Tensor) -> Cut | None:
    if cut is None or cut.selected is None:
        return cut
    precision = torch.promote_types(raw.dtype, torch.float32)
    return replace(cut, threshold=threshold_between(cut.selected, 0.5, precision))
