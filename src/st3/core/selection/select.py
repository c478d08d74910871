"""The exact k-th magnitude over many tensors: which weights are the smallest, without sorting them.

`select` answers for the whole pool: `low`, the k-th smallest score, and `high`, the next one, where a score is a
weight's magnitude times its layer's factor. Three searches give the same answer:

    numpy on the CPU        count and collect what lies in a narrow bracket, partition only that (cpu.py)
    bits of the float       histograms by digit, no host synchronisation: any other device   (bits.py)
    the same, all-reduced   where the weights are sharded over processes

A `Hint` remembers where the last answer lay. It makes the next search faster and never changes its result.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from ..layers.shards import UNSHARDED, Shards

__all__ = ["Hint", "Quota", "Scalar", "Selected", "layer_thresholds", "quota", "select", "threshold_between"]

Scalar = float | Tensor  # a number on the CPU, a 0-dim tensor (never read back) elsewhere


@dataclass
class Hint:
    """Where the last selection ended: a bracket for the next one. Empty at first."""

    low: Scalar | None = None
    previous: float | None = None
    width: float = 0.01  # half-width of the bracket relative to the threshold


@dataclass(frozen=True, eq=False)
class Selected:
    """The k-th smallest score, the next one, and by how many weights ties at `low` exceed k."""

    low: Scalar
    high: Scalar
    surplus: Scalar
    # The same on other devices.
    twins: "dict[torch.device, Selected]" = field(default_factory=dict, repr=False)

    def on(self, device: torch.device) -> "Selected":
        """Return this selection with its numbers on `device`; always the same object for the same device."""
        if not isinstance(self.low, Tensor) or self.low.device == device:
            return self
        if device not in self.twins:
            low, high, surplus = (torch.as_tensor(x).to(device) for x in (self.low, self.high, self.surplus))
            self.twins[device] = Selected(low, high, surplus, self.twins)
        return self.twins[device]


@dataclass(frozen=True)
class Quota:
    """How many weights of a pool are to be zeroed, and where between two scores the threshold lies."""

    zeros: int
    fraction: float = 0.0

    def in_blocks(self, block: int) -> "Quota":
        """Return the quota as a number of blocks, rounded up.

        >>> Quota(9, fraction=0.5).in_blocks(4)
        Quota(zeros=3, fraction=0.125)
        """
        if block == 1 or self.zeros == 0:
            return self
        whole, rest = divmod(self.zeros - 1, block)
        return Quota(whole + 1, (rest + self.fraction) / block)


def quota(weights: int, sparsity: float) -> Quota:
    """Return the quota that the linear quantile of `weights` scores at `sparsity` implies.

    floor((n - 1) s) + 1 scores lie at or below that quantile; none at sparsity 0.

    >>> quota(270_896, 0.9)
    Quota(zeros=243806, fraction=0.5)
    """
    if sparsity <= 0.0 or weights == 0:
        return Quota(0)
    position = (weights - 1) * sparsity
    return Quota(math.floor(position) + 1, position - math.floor(position))


def select(
    tensors: Sequence[Tensor],
    k: int,
    *,
    factors: Sequence[float] | None = None,
    shards: Sequence[Shards] | None = None,
    hint: Hint | None = None,
) -> Selected:
    """Return the k-th smallest of all |weight| * factor (k from 1), the next one, and the surplus of ties.

    >>> found = select([torch.tensor([0.5, -0.4]), torch.tensor([[0.1, 0.3]])], k=2)
    >>> round(found.low, 6), round(found.high, 6), found.surplus
    (0.3, 0.4, 0)
    """
    from . import bits, cpu

    hint = Hint() if hint is None else hint
    shards = [UNSHARDED] * len(tensors) if shards is None else shards
    on_cpu = {tensor.device.type for tensor in tensors} == {"cpu"}
    if on_cpu and not [spread for spread in shards if spread.counts]:
        return cpu.select(tensors, k, factors, hint)
    return bits.select(tensors, k, factors, shards, hint)


def threshold_between(selected: Selected, fraction: float, dtype: torch.dtype) -> Scalar:
    """Return low + (high - low) * fraction in the precision of `dtype`, never rounded up to `high`."""
    low, high = selected.low, selected.high
    if isinstance(low, Tensor) and isinstance(high, Tensor):
        wide = torch.float32 if low.device.type == "mps" else torch.float64  # rounded once, as on the CPU
        gap = torch.where(torch.isfinite(high), high.to(wide) - low.to(wide), 0.0)
        between = (low.to(wide) + gap * fraction).to(low.dtype)
        return torch.where(between < high, between, low)
    if not fraction or high == math.inf:
        return low
    value: float = torch.tensor(low + (high - low) * fraction, dtype=dtype).item()
    return value if low <= value < high else low


def layer_thresholds(
    threshold: Scalar, dtypes: Sequence[torch.dtype], factors: Sequence[float] | None = None
) -> list[Scalar]:
    """Return for each layer the largest magnitude x of its precision whose score x * factor is at most `threshold`.

    Not simply threshold / factor: rounded, that could lie on the wrong side of a weight. Among the floats next to it
    the right one is found, so that a layer's weights at or below its threshold are exactly those whose scores are.
    """
    if factors is None and (len(set(dtypes)) == 1 or len(set(map(_precision, dtypes))) == 1):
        return [threshold] * len(dtypes)
    limit = threshold if isinstance(threshold, Tensor) else torch.tensor(threshold, dtype=torch.float64)
    results: list[Scalar] = [threshold] * len(dtypes)
    for own, bits in ((torch.float32, torch.int32), (torch.float64, torch.int64)):
        members = [i for i, dtype in enumerate(dtypes) if _precision(dtype) == own]
        if not members:
            continue
        factor = _column(tuple(1.0 if factors is None else factors[i] for i in members), own, limit.device)
        near = (limit / factor).to(own).view(bits) + torch.arange(-4, 5, dtype=bits, device=limit.device)
        candidates = torch.clamp(near, min=0).view(own)
        fits = (candidates * factor).to(limit.dtype) <= limit
        largest = torch.where(fits, candidates, 0.0).amax(1)
        found = largest.unbind() if isinstance(threshold, Tensor) else largest.tolist()
        for i, value in zip(members, found, strict=True):
            results[i] = value
    return results


@lru_cache(maxsize=16)
def _column(factors: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return `factors` as a column; kept, because sending it to a device at every step would make the host wait."""
    return torch.tensor(factors, dtype=dtype, device=device)[:, None]


def _precision(dtype: torch.dtype) -> torch.dtype:
    """Return the precision in which weights of `dtype` are compared: half precision in float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32
