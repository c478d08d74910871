"""Allocations: how the sparsity of a pool of layers is shared among them.

An allocation turns a pool of raw weights and a quota (how many of them are to be zeroed) into one cut per layer: the
threshold at or below which a weight is zeroed, or None where the layer stays dense. Whatever the rule, the pool loses
exactly `quota.zeros` weights; only ties at a threshold can zero more, and whole blocks where weights are zeroed in
blocks (counts are in weights all the same). The allocations themselves are in
`st3/allocations/`, one file each; the pool offers the two ways to cut that they need.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import ClassVar

import torch
from torch import Tensor

from ...registry import Registry
from ..layers.layer import Layer
from ..selection.select import Hint, Quota, Scalar, Selected, layer_thresholds, select, threshold_between
from .rounding import apportion

__all__ = ["ALLOCATIONS", "Allocation", "Cut", "Pool", "resolve_allocation", "zeros_per_layer"]


@dataclass(frozen=True, eq=False)
class Cut:
    """Where a layer is cut: weights with |weight| <= threshold are zeroed."""

    threshold: Scalar
    selected: Selected | None = None  # the selection it came from (shared by the layers of one pool) ...
    factor: float = 1.0  # ... and what magnitudes were multiplied with in it
    zeros: int | None = None  # the layer's own quota, where the allocation gave it one


@dataclass(frozen=True)
class Pool:
    """Layers that share a quota: their raw weights (the local part, where sharded) and what is known about them.

    With blocks, `tensors` holds one magnitude per block. All numbers of weights and zeros still count weights.
    """

    layers: Sequence[Layer]
    tensors: Sequence[Tensor]
    hints: dict[object, Hint] = field(default_factory=dict)  # warm starts of the selection
    are_masks: bool = False  # the cuts become masks, for which all ties are broken (see ties.py)

    @property
    def numel(self) -> int:
        return sum(map(attrgetter("numel"), self.layers))

    @property
    def block(self) -> int:
        """How many weights are zeroed together, and share one entry of `tensors`: 1, or the size of the blocks."""
        return self.layers[0].block

    def cut(self, quota: Quota, factors: Sequence[float] | None = None) -> list[Cut | None]:
        """Cut all layers at one score, |weight| * factor, at or below which `quota.zeros` of the pool's scores lie."""
        if quota.zeros == 0:
            return [None] * len(self.layers)
        if self.layers[0].block > 1:
            quota = quota.in_blocks(self.layers[0].block)
        hint = self.hints.setdefault(tuple([layer.name for layer in self.layers]), Hint())
        shards = [layer.shards for layer in self.layers]
        selected = select(self.tensors, quota.zeros, factors=factors, shards=shards, hint=hint)
        dtypes = [tensor.dtype for tensor in self.tensors]
        common = torch.float64 if torch.float64 in dtypes else torch.float32
        own = layer_thresholds(threshold_between(selected, quota.fraction, common), dtypes, factors)
        cuts: list[Cut | None] = []
        for i, (threshold, tensor) in enumerate(zip(own, self.tensors, strict=True)):
            here = selected
            if isinstance(threshold, Tensor):
                threshold, here = threshold.to(tensor.device), selected.on(tensor.device)
            cuts.append(Cut(threshold, here, 1.0 if factors is None else factors[i]))
        return cuts

    def cut_by_counts(self, ideal: Sequence[float], quota: Quota) -> list[Cut | None]:
        """Cut every layer at its own count of zeros; see `zeros_per_layer`."""
        cuts: list[Cut | None] = []
        for i, zeros in enumerate(zeros_per_layer(self.layers, ideal, quota)):
            (cut,) = self.part([i]).cut(Quota(zeros, quota.fraction))
            cuts.append(None if cut is None else replace(cut, zeros=zeros))
        return cuts

    def part(self, indices: Sequence[int]) -> "Pool":
        """Return the pool of some of the layers; it shares the hints."""
        layers, tensors = [self.layers[i] for i in indices], [self.tensors[i] for i in indices]
        return replace(self, layers=layers, tensors=tensors)


def zeros_per_layer(layers: Sequence[Layer], ideal: Sequence[float], quota: Quota) -> list[int]:
    """Round `ideal`, zeros per layer, so that they add up to `quota.zeros`; all keep a weight where possible.

    With blocks, all are whole blocks: the sum is rounded up to those.
    """
    if quota.zeros == 0:
        return [0] * len(layers)
    block = layers[0].block
    total = quota.in_blocks(block).zeros
    most = [layer.numel // block - 1 for layer in layers]
    if total > sum(most):
        most = [layer.numel // block for layer in layers]
    return [block * count for count in apportion([zeros / block for zeros in ideal], total, most)]


class Allocation(ABC):
    """How a pool's zeros are shared among its layers. An allocation is a frozen dataclass that holds its settings."""

    # Gives small layers a higher density, so that they do not lose all weights.
    spares_small_layers: ClassVar[bool] = False
    # The shapes of the layers alone say how many zeros each gets: fits methods with random masks.
    shares_by_shape: ClassVar[bool] = False

    @abstractmethod
    def cut(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        """Return where each layer of the pool is cut so that `quota.zeros` of its weights are zeroed."""


ALLOCATIONS: Registry[Callable[..., Allocation]] = Registry("allocation")


def resolve_allocation(allocation: str | Allocation) -> Allocation:
    """Return the allocation object for a name or an object."""
    if isinstance(allocation, str):
        return ALLOCATIONS[allocation]()
    if not isinstance(allocation, Allocation):
        raise TypeError(
            f"allocation must be a name ({', '.join(ALLOCATIONS)}) or an object such as st3.allocations.Sigma(), "
            f"got {allocation!r}"
        )
    return allocation
