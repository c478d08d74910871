"""A floor of weights that every layer keeps, whatever the allocation says."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..layers.shards import all_reduce
from ..selection.select import Quota
from .allocation import Allocation, Cut, Pool
from .ties import breaks_ties, kept_masks

__all__ = ["cuts_with_floor"]


def cuts_with_floor(allocation: Allocation, pool: Pool, quota: Quota, floor: int) -> list[Cut | None]:
    """Return the allocation's cuts such that every layer keeps at least `floor` weights (all, if it has fewer).

    A layer that would fall below keeps exactly `floor` (with blocks, rounded up to whole ones); the allocation then
    shares the rest of the quota among the others, until none falls below. This reads counts back from the device, so it
    is not the default.
    """
    if floor <= 0 or quota.zeros == 0:
        return allocation.cut(pool, quota)
    whole = -(-floor // pool.block) * pool.block
    kept = [min(whole, layer.numel) for layer in pool.layers]
    if quota.zeros > pool.numel - sum(kept):
        raise ValueError(
            f"at least {floor} weights per layer are to stay, {sum(kept)} in all, but only "
            f"{pool.numel - quota.zeros} of {pool.numel} may: lower the sparsity or min_weights"
        )
    cuts: list[Cut | None] = [None] * len(pool.layers)
    free, left = list(range(len(pool.layers))), quota
    while free:
        some = pool.part(free)
        for i, cut in zip(free, allocation.cut(some, left), strict=True):
            cuts[i] = cut
        active = _active(some, [cuts[i] for i in free])
        short = [i for i, count in zip(free, active, strict=True) if count < kept[i]]
        if not short:
            break
        for i in short:
            alone = pool.part([i])
            cuts[i] = _keep(alone, kept[i])
            lost = alone.numel - _active(alone, [cuts[i]])[0]
            left = Quota(max(0, left.zeros - lost), left.fraction)
        free = [i for i in free if i not in short]
        # Where ties let a layer keep more than its floor, the others may have too few weights to make up for it.
        left = Quota(min(left.zeros, sum(pool.layers[i].numel - kept[i] for i in free)), left.fraction)
    return cuts


def _keep(pool: Pool, least: int) -> Cut | None:
    """Cut a single layer so that at least `least` of its weights stay: more at a tie, unless ties are broken."""
    zeros = pool.numel - least
    if zeros == 0:
        return None
    (cut,) = pool.cut(Quota(zeros))
    assert cut is not None and cut.selected is not None  # noqa: PT018 - for the type checker
    if breaks_ties(pool.layers[0], pool.tensors[0], are_masks=pool.are_masks):
        return replace(cut, zeros=zeros)
    surplus, threshold = cut.selected.surplus, cut.threshold
    if isinstance(surplus, Tensor) or isinstance(threshold, Tensor):
        threshold, surplus = torch.as_tensor(threshold), torch.as_tensor(surplus)
        below = torch.nextafter(threshold, torch.full_like(threshold, -1.0))
        return Cut(torch.where(surplus > 0, below, threshold), zeros=zeros)
    if not surplus:
        return replace(cut, zeros=zeros)
    precision = torch.promote_types(pool.tensors[0].dtype, torch.float32)  # as scores are compared
    smaller = torch.nextafter(
        torch.tensor(threshold, dtype=precision), torch.tensor(-1.0, dtype=precision)
    ).item()
    return Cut(smaller) if smaller >= 0.0 else None


def _active(pool: Pool, cuts: Sequence[Cut | None]) -> list[int]:
    """Return how many weights of each layer the cuts leave."""
    masks = kept_masks(pool.layers, cuts, pool.tensors, are_masks=pool.are_masks)
    return [
        layer.block * int(all_reduce(mask.sum(), layer.shards.counts))
        for layer, mask in zip(pool.layers, masks, strict=True)
    ]
