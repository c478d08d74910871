"""Looking at sparse layers: how many zeros, which filters are empty, is anything not a number."""

import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .budget.allocation import Allocation
from .errors import LayerCollapseWarning, name_some
from .layers.layer import Layer
from .layers.shards import all_reduce

__all__ = ["CollapseWatch", "Count", "count", "count_all", "require_numbers"]

NAMED = 3  # layers named in a warning; the others are counted


@dataclass(frozen=True)
class Count:
    """What one layer holds now."""

    zeros: int
    empty_filters: int
    filters: int


def count(layer: Layer) -> Count:
    """Count the zeros and the empty filters of a layer, over all processes."""
    return count_all([layer])[layer.name]


@torch.no_grad()
def count_all(layers: Sequence[Layer]) -> dict[str, Count]:
    """Count every layer; the counts are read back from the device together."""
    totals = []
    for layer in layers:
        active = layer.weight != 0
        per_filter = all_reduce(layer.filters.sums(active), layer.shards.filters)
        whole = [group for group in layer.shards.counts if group not in layer.shards.filters]
        totals.append(all_reduce(torch.stack([per_filter.sum(), (per_filter == 0).sum()]), whole))
    return {
        layer.name: Count(layer.numel - kept, empty, layer.filters.count(layer.shape))
        for layer, (kept, empty) in zip(layers, _read(totals), strict=True)
    }


def _read(values: Sequence[Tensor]) -> list[list[Any]]:
    """Return small tensors as numbers: one read for all of them."""
    if not values:
        return []
    together: list[list[Any]] = torch.stack([value.to(values[0].device) for value in values]).tolist()
    return together


def require_numbers(layers: Sequence[Layer], tensors: Sequence[Tensor], when: str) -> None:
    """Raise where a weight is not finite, naming the layers."""
    totals = []
    for layer, tensor in zip(layers, tensors, strict=True):
        totals.append(all_reduce(_range(tensor.detach()), layer.shards.counts))
    bad = [
        repr(layer.name)
        for layer, (spread,) in zip(layers, _read(totals), strict=True)
        if not math.isfinite(spread)
    ]
    if bad:
        raise ValueError(
            f"layer{'s' * (len(bad) > 1)} {', '.join(bad)} hold{'s' * (len(bad) == 1)} NaN or infinite weights {when}: "
            f"lower the learning rate or clip gradients, and go back to an earlier checkpoint"
        )


def _range(tensor: Tensor) -> Tensor:
    """Return how far the weights spread, not finite if one of them is not; without a copy of them, unlike their sum."""
    if not tensor.numel():  # of a sharded weight, this process may hold nothing
        return torch.zeros(1, dtype=torch.float64, device=tensor.device)
    low, high = torch.aminmax(tensor)
    return (high.double() - low.double()).reshape(1)


class CollapseWatch:
    """Warns when a layer has lost its last weight (once per layer) or filters have (once, and at the end)."""

    def __init__(self, allocation: Allocation, *, has_target: bool = True) -> None:
        even = "" if allocation.spares_small_layers else "use allocation='erk', "
        less = f"lower the sparsity, set min_weights, {even}" if has_target else "lower the weight decay "
        self._advice = f"{less}or exclude the layer"
        self._empty_layers: set[str] = set()
        self._empty_filters = 0  # as last warned about

    def look(self, layers: Sequence[Layer], step: int, *, is_last: bool = False) -> None:
        """Look at the layers as they are after `step` steps."""
        counts = count_all(layers)
        empty = [
            x.name for x in layers if counts[x.name].zeros == x.numel and x.name not in self._empty_layers
        ]
        if empty:
            self._empty_layers.update(empty)
            which = f"layers {name_some(empty)} have" if len(empty) > 1 else f"layer {empty[0]!r} has"
            self._warn(f"{which} no active weight left at step {step}: {self._advice}")
        partly = {name: c for name, c in counts.items() if c.empty_filters and name not in self._empty_layers}
        total = sum(c.empty_filters for c in partly.values())
        if total > self._empty_filters and (is_last or not self._empty_filters):
            self._empty_filters = total
            worst = sorted(partly, key=lambda name: -partly[name].empty_filters)
            where = ", ".join(
                f"{name!r} ({partly[name].empty_filters} of {partly[name].filters})" for name in worst[:NAMED]
            )
            more = (
                f" and {len(worst) - NAMED} more layers, {total} filters in all" if len(worst) > NAMED else ""
            )
            self._warn(
                f"at step {step} no active weight is left in some filters of {where}{more}: their outputs are "
                f"constant, which is common at high sparsity; if accuracy suffers, {self._advice}"
            )

    @staticmethod
    def _warn(message: str) -> None:
        warnings.warn(message, LayerCollapseWarning, stacklevel=_frames_to_the_user())


def _frames_to_the_user() -> int:
    """Return how many frames up the first line lies that belongs neither to torch nor to this package."""
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        level, frame = level + 1, frame.f_back
    return level
