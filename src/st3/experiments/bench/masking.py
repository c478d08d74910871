"""Make an untrained network sparse in one step, for benchmarks where accuracy does not matter."""

import torch
from torch import nn

from ...core.budget.allocation import ALLOCATIONS, Allocation, Pool
from ...core.families.blocks import block_magnitudes, spread_over_blocks
from ...core.layers.find import find_layers
from ...core.layers.groups import divide_into_blocks
from ...core.layers.patterns import Patterns
from ...core.selection.select import quota

__all__ = ["mask"]


def mask(
    model: nn.Module,
    sparsity: float,
    allocation: str | Allocation = "uniform",
    *,
    exclude: Patterns = (),
    block: int = 1,
) -> nn.Module:
    """Zero the smallest weights or blocks of weights, allocated to the layers by the allocation, and return the model.

    Each layer's remaining weights are scaled to keep its norm, so that activations do not vanish over many layers.

    >>> layer = mask(nn.Linear(100, 10, bias=False), 0.9)
    >>> int((layer.weight == 0).sum())
    900
    """
    share = ALLOCATIONS[allocation]() if isinstance(allocation, str) else allocation
    layers = divide_into_blocks(find_layers(model, exclude=exclude, trained_only=False), block)
    if not 0 <= sparsity < 1:
        raise ValueError(f"sparsity must be at least 0 and below 1, got {sparsity:g}")
    pool = Pool([*layers], [block_magnitudes(layer.parameter.detach(), layer) for layer in layers])
    with torch.no_grad():
        cuts = share.cut(pool, quota(pool.numel, sparsity))
        for layer, magnitudes, cut in zip(layers, pool.tensors, cuts, strict=True):
            if cut is None:
                continue
            before = layer.parameter.norm()
            kept = spread_over_blocks(magnitudes.abs() > cut.threshold, layer)
            layer.parameter.masked_fill_(~kept, 0.0)
            left = layer.parameter.norm()
            if left > 0:
                layer.parameter.mul_(before / left)
    return model
