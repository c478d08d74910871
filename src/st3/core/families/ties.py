"""Ties at the threshold, common among the few magnitudes of half precision, are broken in order of position.

So the count stays exact. In float32 and float64 ties are so rare that all weights at the threshold are zeroed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..budget.allocation import Cut
from ..layers.layer import Layer
from ..selection.select import Scalar

__all__ = ["HALF", "break_ties", "spare_ties", "tied_at_cut"]

HALF = (torch.bfloat16, torch.float16)
# A half-precision magnitude times this lies just below it, and above the next smaller one.
_BELOW = 1.0 - 2.0**-12


def spare_ties(cut: Cut) -> Scalar:
    """Return the threshold, or one just below it where weights tied with it are to be zeroed one by one later."""
    threshold = cut.threshold
    if cut.selected is None:
        return threshold
    surplus = cut.selected.surplus
    if isinstance(surplus, Tensor) or isinstance(threshold, Tensor):
        return torch.where(torch.as_tensor(surplus) > 0, threshold * _BELOW, threshold)
    return threshold * _BELOW if surplus > 0 else threshold


def tied_at_cut(cut: Cut | None, raw: Tensor) -> Tensor:
    """Return which half-precision weights lie at the threshold itself, where position decides."""
    if cut is None or cut.selected is None or raw.dtype not in HALF:
        return torch.zeros_like(raw, dtype=torch.bool)
    return raw.float().abs() * cut.factor == cut.selected.low


def break_ties(layers: Sequence[Layer], cuts: Sequence[Cut | None], raws: Sequence[Tensor]) -> None:
    """Zero all but the first `surplus` half-precision weights that are tied at the threshold of their pool."""
    seen: dict[int, Tensor] = {}
    for layer, cut, raw in zip(layers, cuts, raws, strict=True):
        if raw.dtype not in HALF or cut is None or cut.selected is None:
            continue
        selected = cut.selected
        if not isinstance(selected.surplus, Tensor) and selected.surplus == 0:
            continue
        tied = tied_at_cut(cut, raw)
        before = seen.get(id(selected.twins), torch.zeros((), dtype=torch.int64)).to(raw.device)
        position = before + tied.flatten().cumsum(0).view_as(tied)
        # Sharded weights have no order among the processes: there all ties go.
        spared = 0 if layer.shards.counts else selected.surplus
        layer.weight.masked_fill_(
            (raw.float().abs() * cut.factor < selected.low) | (tied & (position > spared)), 0.0
        )
        seen[id(selected.twins)] = before + tied.sum()
