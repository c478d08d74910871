"""Write sparse weights into parameters piece by piece, so that a piece stays in the cache.

On the CPU a large weight is worked through a few filters at a time: the dozen elementary operations on such a piece
find it in the cache.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ..layers.layer import Layer

__all__ = ["write_in_pieces"]

PIECE = 1 << 17  # weights per piece and thread: raw, sparse and scratch fit the second-level cache

T = TypeVar("T")


def write_in_pieces(
    layer: Layer,
    raw: Tensor,
    sparse: Tensor,
    write: Callable[[Tensor, Tensor], T] | None,
    *,
    is_lifted: bool,
) -> list[T]:
    """Call `write(raw, sparse)` for some rows of the weight at a time; return its answers.

    `is_lifted` says that `sparse` holds the raw weight that the optimizer has just moved: it is copied into `raw` on
    the way. Should anything interrupt this, `raw` is complete all the same. Without `write` the layer is dense.
    """
    answers: list[T] = []
    copied = 0
    try:
        for start, end in _pieces(sparse, layer):
            source, target = raw[start:end], sparse[start:end]
            if is_lifted:
                source.copy_(target)
                copied = end
            elif write is None:
                target.copy_(source)
            if write is not None:
                answers.append(write(source, target))
    except BaseException:
        if is_lifted:
            raw[copied:].copy_(sparse[copied:])
        raise
    return answers


def _pieces(sparse: Tensor, layer: Layer) -> Sequence[tuple[int, int]]:
    rows = sparse.shape[0]
    filters_are_rows = 0 in layer.filters.axes and not layer.shards.filters
    if sparse.device.type != "cpu" or not filters_are_rows or sparse.numel() <= 2 * PIECE:
        return [(0, rows)]
    step = max(1, PIECE * torch.get_num_threads() * rows // sparse.numel())
    return [(start, min(start + step, rows)) for start in range(0, rows, step)]
