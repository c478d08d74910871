"""Allocations: how the sparsity of a pool of layers is shared among them.

An allocation turns a pool of raw weights and a quota (how many of them are to be zeroed) into one cut per layer: the
threshold at or below which a weight is zeroed, or None where the layer stays dense. Whatever the rule, the pool loses
exactly `quota.zeros` weights; only ties at a threshold can zero more.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..registry import Registry
from .layers import Layer
from .selection import Hint, Quota, Scalar, Selected, layer_thresholds, select, threshold_between
from .shares import apportion, erk_densities, lamp_scores

__all__ = [
    "ALLOCATIONS",
    "ERK",
    "LAMP",
    "Allocation",
    "Cut",
    "Global",
    "Pool",
    "Sigma",
    "Uniform",
]


@dataclass(frozen=True, eq=False)
class Cut:
    """Where a layer is cut: weights with |weight| <= threshold are zeroed."""

    threshold: Scalar
    selected: Selected | None = None  # the selection it came from (shared by the layers of one pool) ...
    factor: float = 1.0  # ... and what magnitudes were multiplied with in it
    zeros: int | None = None  # the layer's own quota, where the allocation gave it one
    in_groups: bool = False  # no one threshold: every N:M group has its own


@dataclass(frozen=True)
class Pool:
    """Layers that share a quota: their raw weights (the local part, where sharded) and what is known about them."""

    layers: Sequence[Layer]
    tensors: Sequence[Tensor]
    hints: dict[object, Hint] = field(
        default_factory=dict
    )  # warm starts, by whatever key the allocation likes

    @property
    def weights(self) -> int:
        return sum(layer.weights for layer in self.layers)

    def cut(self, quota: Quota, factors: Sequence[float] | None = None) -> "list[Cut]":
        """Cut all layers at one score, |weight| * factor, at or below which `quota.zeros` of the pool's scores lie."""
        hint = self.hints.setdefault(tuple(layer.name for layer in self.layers), Hint())
        shards = [layer.shards for layer in self.layers]
        selected = select(self.tensors, quota.zeros, factors=factors, shards=shards, hint=hint)
        dtypes = [tensor.dtype for tensor in self.tensors]
        common = torch.float64 if torch.float64 in dtypes else torch.float32
        own = layer_thresholds(threshold_between(selected, quota.fraction, common), dtypes, factors)
        return [
            Cut(_on(tensor, t), selected.on(tensor.device), 1.0 if factors is None else factors[i])
            for i, (t, tensor) in enumerate(zip(own, self.tensors, strict=True))
        ]

    def part(self, indices: Sequence[int]) -> "Pool":
        """Return the pool of some of the layers; it shares the hints."""
        return Pool([self.layers[i] for i in indices], [self.tensors[i] for i in indices], self.hints)


def _on(tensor: Tensor, value: Scalar) -> Scalar:
    return value.to(tensor.device) if isinstance(value, Tensor) else value


Allocation = Callable[[Pool, Quota], list[Cut | None]]
ALLOCATIONS: Registry[Callable[[], Allocation]] = Registry("allocation")


@ALLOCATIONS.register("global")
@dataclass(frozen=True)
class Global:
    """One threshold on the magnitude over all layers (ST-3)."""

    def __call__(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        if quota.zeros == 0:
            return [None] * len(pool.layers)
        return [*pool.cut(quota)]


@ALLOCATIONS.register("sigma")
@dataclass(frozen=True)
class Sigma:
    """One threshold on magnitude * factor (ST-3 sigma): zeroes more in layers with few, large weights.

    The factor of a layer is the square root of the sum of its shape. The paper's text says "the number of weights in
    its kernel" and motivates it with the fan-in; its pseudo-code and the authors' program take the sum of the shape,
    and only that or the fan-in fits the published MACs (docs/decisions/0004-sigma-factor.md).
    """

    factor: Literal["shape", "fan_in", "count"] = "shape"

    def __post_init__(self) -> None:
        if self.factor not in ("shape", "fan_in", "count"):
            raise ValueError(f"factor must be 'shape', 'fan_in' or 'count', got {self.factor!r}")

    def of(self, layer: Layer) -> float:
        """Return the factor of one layer."""
        if self.factor == "shape":
            return math.sqrt(sum(layer.shape))
        if self.factor == "fan_in":
            return math.sqrt(layer.filters.size(layer.shape))
        return math.sqrt(layer.weights)

    def __call__(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        if quota.zeros == 0:
            return [None] * len(pool.layers)
        return [*pool.cut(quota, [self.of(layer) for layer in pool.layers])]


@ALLOCATIONS.register("uniform")
@dataclass(frozen=True)
class Uniform:
    """The same sparsity in every layer."""

    def __call__(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        share = quota.zeros / max(1, pool.weights)
        return _cut_by_counts(pool, [share * layer.weights for layer in pool.layers], quota)


@ALLOCATIONS.register("erk")
@dataclass(frozen=True)
class ERK:
    """Erdos-Renyi-Kernel (RigL): density in proportion to sum(shape) / prod(shape), at most 1.

    `power` 1 is ERK, 0 is uniform.
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        if self.power < 0:
            raise ValueError(f"power must not be negative, got {self.power}")

    def __call__(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        if quota.zeros == 0:
            return [None] * len(pool.layers)
        _, densities = erk_densities(
            [layer.shape for layer in pool.layers], quota.zeros / pool.weights, power=self.power
        )
        ideal = [layer.weights * (1.0 - d) for layer, d in zip(pool.layers, densities, strict=True)]
        return _cut_by_counts(pool, ideal, quota)


@ALLOCATIONS.register("lamp")
@dataclass(frozen=True)
class LAMP:
    """Keep the largest LAMP scores: w_u^2 / (sum of all w_v^2 >= w_u^2 in the layer) (Lee et al., ICLR 2021).

    Inside a layer the score rises with the magnitude, so the result is a threshold per layer: its largest zeroed
    magnitude. The largest weight of every layer scores 1, so no layer can become empty. Sorts every layer and reads
    counts back from the device: the slowest of the allocations.
    """

    def __call__(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        if any(layer.shards.counts for layer in pool.layers):
            raise ValueError(
                "allocation 'lamp' sorts every layer and cannot do that for sharded weights; use 'global'"
            )
        if quota.zeros == 0:
            return [None] * len(pool.layers)
        if pool.weights - quota.zeros < len(pool.layers):
            raise ValueError(
                f"allocation 'lamp' keeps at least one weight in each of the {len(pool.layers)} layers, but only "
                f"{pool.weights - quota.zeros} weights may stay; ask for less sparsity"
            )
        ordered = [torch.sort(t.detach().abs().flatten()).values for t in pool.tensors]
        scores = [lamp_scores(o).to(pool.tensors[0].device) for o in ordered]
        together = torch.cat(scores)
        limit = (
            together.kthvalue(quota.zeros).values
            if together.device.type != "cpu"
            else _kth(together, quota.zeros)
        )
        zeros = [int(torch.searchsorted(s, limit)) for s in scores]
        tied = [int(torch.searchsorted(s, limit, right=True)) - z for s, z in zip(scores, zeros, strict=True)]
        missing = quota.zeros - sum(zeros)
        for i, ties in enumerate(tied):
            extra = min(ties, missing, ordered[i].numel() - 1 - zeros[i])
            zeros[i] += extra
            missing -= extra
        return [
            Cut(o[z - 1].item() if o.device.type == "cpu" else o[z - 1].clone(), zeros=z) if z else None
            for o, z in zip(ordered, zeros, strict=True)
        ]


def _kth(values: Tensor, k: int) -> Tensor:
    return torch.tensor(np.partition(values.numpy(), k - 1)[k - 1], dtype=values.dtype)


def _cut_by_counts(pool: Pool, ideal: Sequence[float], quota: Quota) -> list[Cut | None]:
    """Cut every layer at its own count of zeros; a layer keeps at least one weight where the quota allows it."""
    if quota.zeros == 0:
        return [None] * len(pool.layers)
    most = [layer.weights - 1 for layer in pool.layers]
    if quota.zeros > sum(most):
        most = [layer.weights for layer in pool.layers]
    counts = apportion(ideal, quota.zeros, most)
    cuts: list[Cut | None] = []
    for i, zeros in enumerate(counts):
        if zeros == 0:
            cuts.append(None)
            continue
        (cut,) = pool.part([i]).cut(Quota(zeros, quota.fraction))
        cuts.append(replace(cut, zeros=zeros))
    return cuts
