"""Looking at sparse layers: how many zeros, which filters are empty, is anything not a number."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import LayerCollapseWarning
from .layers import Layer
from .shards import all_reduce, local

__all__ = ["CollapseWatch", "Count", "count", "require_numbers"]


@dataclass(frozen=True)
class Count:
    """What one layer holds now."""

    zeros: int
    empty_filters: int
    filters: int


@torch.no_grad()
def count(layer: Layer) -> Count:
    """Count the zeros and the empty filters of a layer, over all processes."""
    active = local(layer.parameter.detach()) != 0
    per_filter = all_reduce(layer.filters.sums(active), layer.shards.filters)
    whole = [group for group in layer.shards.counts if group not in layer.shards.filters]
    totals = all_reduce(torch.stack([per_filter.sum(), (per_filter == 0).sum()]), whole)
    kept, empty = (int(value) for value in totals)
    return Count(layer.weights - kept, empty, layer.filters.count(layer.shape))


def require_numbers(layers: Sequence[Layer], tensors: Sequence[Tensor], when: str) -> None:
    """Raise where a weight is not finite, naming the layers."""
    sums = [all_reduce(tensor.detach().abs().sum(dtype=torch.float64), ()) for tensor in tensors]
    bad = [layer.name for layer, total in zip(layers, sums, strict=True) if not bool(torch.isfinite(total))]
    if bad:
        raise ValueError(
            f"layer {', '.join(map(repr, bad))} holds NaN or infinite weights {when}: "
            f"lower the learning rate or clip gradients, and go back to an earlier checkpoint"
        )


class CollapseWatch:
    """Warns, once per layer, when a layer or one of its filters has lost its last weight."""

    def __init__(self, advice: str) -> None:
        self._advice = advice
        self._warned: set[tuple[str, str]] = set()

    def look(self, layers: Sequence[Layer], step: int) -> None:
        """Look at the layers as they are after `step` steps."""
        lost_filters = []
        for layer in layers:
            found = count(layer)
            if found.zeros == layer.weights and ("layer", layer.name) not in self._warned:
                self._warned |= {("layer", layer.name), ("filter", layer.name)}
                warnings.warn(
                    f"layer {layer.name!r} has no active weight left at step {step}: {self._advice}",
                    LayerCollapseWarning,
                    stacklevel=2,
                )
            elif found.empty_filters and ("filter", layer.name) not in self._warned:
                self._warned.add(("filter", layer.name))
                lost_filters.append(f"{layer.name!r} ({found.empty_filters} of {found.filters})")
        if lost_filters:
            warnings.warn(
                f"at step {step} filters without any active weight appeared in {', '.join(lost_filters)}; their "
                f"outputs are constant, which is common at high sparsity. If accuracy suffers: {self._advice}",
                LayerCollapseWarning,
                stacklevel=2,
            )
