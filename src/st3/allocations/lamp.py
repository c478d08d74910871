"""The LAMP allocation (Lee et al., ICLR 2021)."""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from ..core.budget.allocation import ALLOCATIONS, Allocation, Cut, Pool
from ..core.selection.select import Quota

__all__ = ["LAMP", "lamp_scores"]


@final
@ALLOCATIONS.register("lamp")
@dataclass(frozen=True)
class LAMP(Allocation):
    """Keep the largest LAMP scores: w_u^2 / (sum of all w_v^2 >= w_u^2 in the layer) (Lee et al., ICLR 2021).

    Inside a layer the score rises with the magnitude, so the result is a threshold per layer: its largest zeroed
    magnitude. The largest weight of every layer scores 1, so no layer can become empty. Sorts every layer and reads
    counts back from the device: the slowest of the allocations.
    """

    def cut(self, pool: Pool, quota: Quota) -> list[Cut | None]:
        if any(layer.shards.counts for layer in pool.layers):
            raise ValueError(
                "allocation 'lamp' sorts every layer and cannot do that for sharded weights; use 'global'"
            )
        if quota.zeros == 0:
            return [None] * len(pool.layers)
        count = quota.in_blocks(pool.block).zeros  # of entries of the tensors: weights, or blocks
        stay = pool.numel // pool.block - count
        if stay < len(pool.layers):
            parts = "weight" if pool.block == 1 else "block"
            raise ValueError(
                f"allocation 'lamp' keeps at least one {parts} in each of the {len(pool.layers)} layers, but only "
                f"{stay} {parts}s may stay; ask for less sparsity"
            )
        ordered = [torch.sort(t.detach().abs().flatten()).values for t in pool.tensors]
        scores = [lamp_scores(o).to(pool.tensors[0].device) for o in ordered]
        together = torch.cat(scores)
        limit = (
            together.kthvalue(count).values if together.device.type != "cpu" else _find_kth(together, count)
        )
        zeros = [int(torch.searchsorted(s, limit)) for s in scores]
        tied = [int(torch.searchsorted(s, limit, right=True)) - z for s, z in zip(scores, zeros, strict=True)]
        missing = count - sum(zeros)
        for i, ties in enumerate(tied):
            extra = min(ties, missing, ordered[i].numel() - 1 - zeros[i])
            zeros[i] += extra
            missing -= extra
        return pool.cut_by_counts([pool.block * lost for lost in zeros], Quota(quota.zeros))


def _find_kth(values: Tensor, k: int) -> Tensor:
    return torch.tensor(np.partition(values.numpy(), k - 1)[k - 1], dtype=values.dtype)


def lamp_scores(ascending: Tensor) -> Tensor:
    """Return the LAMP score of each of a layer's magnitudes, given in ascending order.

    >>> lamp_scores(torch.tensor([1.0, 2.0, 3.0])) * 182
    tensor([ 13.,  56., 182.], dtype=torch.float64)
    """
    squares = ascending.double() ** 2
    rest = squares.flip(0).cumsum(0).flip(0)
    return torch.where(rest > 0, squares / rest, torch.zeros_like(rest))
