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
    bad = []
    for layer, tensor in zip(layers, tensors, strict=True):
        total = all_reduce(tensor.detach().abs().sum(dtype=torch.float64), layer.shards.counts)
        if not bool(torch.isfinite(total)):
            bad.append(layer.name)
    if bad:
        raise ValueError(
            f"layer {', '.join(map(repr, bad))} holds NaN or infinite weights {when}: "
            f"lower the learning rate or clip gradients, and go back to an earlier checkpoint"
        )


class CollapseWatch:
    """Warns when a layer has lost its last weight (once per layer) or filters have (once, and at the end)."""

    def __init__(self, advice: str) -> None:
        self._advice = advice
        self._empty_layers: set[str] = set()
        self._empty_filters = 0  # as last warned about

    def look(self, layers: Sequence[Layer], step: int, *, is_last: bool = False) -> None:
        """Look at the layers as they are after `step` steps."""
        counts = {layer.name: count(layer) for layer in layers}
        for layer in layers:
            if counts[layer.name].zeros == layer.weights and layer.name not in self._empty_layers:
                self._empty_layers.add(layer.name)
                self._warn(f"layer {layer.name!r} has no active weight left at step {step}: {self._advice}")
        partly = {name: c for name, c in counts.items() if c.empty_filters and name not in self._empty_layers}
        total = sum(c.empty_filters for c in partly.values())
        if total > self._empty_filters and (is_last or not self._empty_filters):
            self._empty_filters = total
            where = ", ".join(f"{name!r} ({c.empty_filters} of {c.filters})" for name, c in partly.items())
            self._warn(
                f"at step {step} no active weight is left in some filters of {where}: their outputs are constant, "
                f"which is common at high sparsity; if accuracy suffers, {self._advice}"
            )

    @staticmethod
    def _warn(message: str) -> None:
        warnings.warn(message, LayerCollapseWarning, stacklevel=3)
