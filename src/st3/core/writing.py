"""Writing sparse weights into the parameters, few passes over memory at a time.

On the CPU a large weight is worked through in pieces of a few filters, so that the dozen elementary operations on a
piece find it in the cache. Half-precision weights are computed in float32, and ties at the threshold, rare elsewhere
but common among their few distinct magnitudes, are broken in order of position so that the count stays exact.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .allocations import Cut
from .groups import write_groups
from .layers import Layer
from .method import GroupMethod, ThresholdMethod
from .selection import Scalar
from .shards import local

__all__ = ["break_ties", "tied_at_cut", "write_sparse"]

PIECE = 1 << 17  # weights per piece and thread: raw, sparse and scratch fit the second-level cache
HALF = (torch.bfloat16, torch.float16)
_BELOW = (
    1.0 - 2.0**-12
)  # steps from a half-precision magnitude to just below it, but above the next smaller one


def write_sparse(
    method: ThresholdMethod | GroupMethod,
    layer: Layer,
    cut: Cut | None,
    raw: Tensor,
    *,
    fresh: bool,
    fixed_scale: Tensor | None = None,
) -> Tensor | None:
    """Write the sparse weight of `raw` into the layer's parameter; return the method's factor per filter.

    `fresh` says that the parameter holds the raw weight just updated: it is copied into `raw` on the way. Should
    anything interrupt this, `raw` is complete all the same. `fixed_scale` is a factor for the whole weight, which a
    group method may have.
    """
    sparse = local(layer.parameter.detach())
    pieces = _pieces(sparse, layer)
    scales, copied = [], 0
    try:
        for start, end in pieces:
            source, target = raw[start:end], sparse[start:end]
            if fresh:
                source.copy_(target)
                copied = end
            if cut is None:
                if not fresh:
                    target.copy_(source)
            elif isinstance(method, GroupMethod):
                write_groups(method, layer, source, target, fixed_scale)
            else:
                scales.append(_write_piece(method, layer, cut, source, target))
    except BaseException:
        if fresh:
            raw[copied:].copy_(sparse[copied:])
        raise
    whole = [scale for scale in scales if scale is not None]
    return torch.cat(whole) if len(whole) > 1 else (whole[0] if whole else None)


def _pieces(sparse: Tensor, layer: Layer) -> Sequence[tuple[int, int]]:
    rows = sparse.shape[0]
    filters_are_rows = layer.filters.axis == 0 and layer.filters.groups == 1 and not layer.shards.filters
    if sparse.device.type != "cpu" or not filters_are_rows or sparse.numel() <= 2 * PIECE:
        return [(0, rows)]
    step = max(1, PIECE * torch.get_num_threads() * rows // sparse.numel())
    return [(start, min(start + step, rows)) for start in range(0, rows, step)]


def _write_piece(
    method: ThresholdMethod, layer: Layer, cut: Cut, raw: Tensor, sparse: Tensor
) -> Tensor | None:
    threshold = cut.threshold
    if raw.dtype not in HALF:
        return method.sparse_weight(raw, threshold, layer.filter_means, sparse)
    wide = torch.empty_like(raw, dtype=torch.float32)
    scale = method.sparse_weight(raw.float(), _below_ties(cut, threshold), layer.filter_means, wide)
    sparse.copy_(wide)
    return scale


def _below_ties(cut: Cut, threshold: Scalar) -> Scalar:
    """Return the threshold, or just below it where weights tied with it are to be spared one by one."""
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
        sparse = local(layer.parameter.detach())
        sparse.masked_fill_(
            (raw.float().abs() * cut.factor < selected.low) | (tied & (position > spared)), 0.0
        )
        seen[id(selected.twins)] = before + tied.sum()
