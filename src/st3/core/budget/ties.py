"""Scores tied at the threshold of their pool: of those the first in order stay, so that the count is exact.

Masks break all ties, which are common among weights that have grown: Adam's kind moves each of them by its rate at
first. Raw weights under a threshold break them in half precision, which knows few magnitudes. In float32 and float64,
and among blocks, whose magnitudes are computed in these, they tie so rarely that all at the threshold are zeroed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..layers.layer import Layer
from ..selection.select import Scalar
from .allocation import Cut

__all__ = ["HALF", "breaks_ties", "kept_masks", "spare_ties", "tied_at_cut", "zero_ties"]

HALF = (torch.bfloat16, torch.float16)
# A half-precision magnitude times this lies just below it, and above the next smaller one.
_BELOW = 1.0 - 2.0**-12


def breaks_ties(layer: Layer, scores: Tensor, *, are_masks: bool) -> bool:
    """Whether tied scores are zeroed one by one; sharded ones have no order among the processes: there all go."""
    return (are_masks or scores.dtype in HALF) and not layer.shards.counts


def kept_masks(
    layers: Sequence[Layer], cuts: Sequence[Cut | None], scores: Sequence[Tensor], *, are_masks: bool
) -> list[Tensor]:
    """Return which scores stay: those above the threshold and, where ties are broken, the first tied with it."""
    seen: dict[int, Tensor] = {}
    masks = []
    for layer, cut, score in zip(layers, cuts, scores, strict=True):
        if cut is None:
            masks.append(torch.ones_like(score, dtype=torch.bool))
            continue
        wide = _widened(score)
        mask, selected = wide > cut.threshold, cut.selected
        masks.append(mask)
        if selected is not None and _has_ties(cut) and breaks_ties(layer, score, are_masks=are_masks):
            tied = wide * cut.factor == selected.low
            before = seen.get(id(selected.twins), torch.zeros((), dtype=torch.int64)).to(score.device)
            position = before + tied.flatten().cumsum(0).view_as(tied)
            mask |= tied & (position <= selected.surplus)
            seen[id(selected.twins)] = before + tied.sum()
    return masks


def zero_ties(layers: Sequence[Layer], cuts: Sequence[Cut | None], raws: Sequence[Tensor]) -> None:
    """Zero the half-precision weights that a threshold just below the cut has spared and the count does not."""
    some = [
        i for i, raw in enumerate(raws) if raw.dtype in HALF and layers[i].block == 1 and _has_ties(cuts[i])
    ]
    chosen = [layers[i] for i in some]
    masks = kept_masks(chosen, [cuts[i] for i in some], [raws[i] for i in some], are_masks=False)
    for layer, mask in zip(chosen, masks, strict=True):
        layer.weight.masked_fill_(~mask, 0.0)


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
    return _widened(raw) * cut.factor == cut.selected.low


def _has_ties(cut: Cut | None) -> bool:
    """Whether more scores may lie at the threshold than are to be zeroed; on other devices it is not read back."""
    if cut is None or cut.selected is None:
        return False
    return isinstance(cut.selected.surplus, Tensor) or cut.selected.surplus > 0


def _widened(scores: Tensor) -> Tensor:
    """Return magnitudes in the precision in which they are compared."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32)).abs()
