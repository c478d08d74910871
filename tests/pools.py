"""Pools of layers for tests of allocations, and what a cut of them zeroes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from st3.core.budget.allocation import Cut, Pool
from st3.core.layers.filters import Filters
from st3.core.layers.layer import Layer
from st3.core.layers.shards import UNSHARDED

__all__ = ["pool_of", "random_pool", "zeros"]


def pool_of(*tensors: Tensor, are_masks: bool = False) -> Pool:
    """Return the pool of layers with these weights."""
    layers = [
        Layer(f"layer{i}", nn.Parameter(t), "Linear", Filters(), UNSHARDED) for i, t in enumerate(tensors)
    ]
    return Pool(layers, tensors, are_masks=are_masks)


def random_pool(shapes: Sequence[Sequence[int]], seed: int, dtype: torch.dtype = torch.float64) -> Pool:
    """Return a pool of random weights, which do not tie in double precision; every layer has a scale of its own."""
    generator = torch.Generator().manual_seed(seed)
    tensors = [
        (torch.randn(shape, generator=generator, dtype=torch.float64) * 3.0**-i).to(dtype)
        for i, shape in enumerate(shapes)
    ]
    return pool_of(*tensors)


def zeros(pool: Pool, cuts: Sequence[Cut | None]) -> list[int]:
    """Count, layer by layer, the weights at or below the threshold."""
    return [
        0 if cut is None else int((raw.double().abs() <= float(cut.threshold)).sum())
        for raw, cut in zip(pool.tensors, cuts, strict=True)
    ]
