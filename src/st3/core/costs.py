"""What sparse training adds under `fully_shard`, per process: bytes kept and bytes sent, from the layers alone.

Weights are taken to be sharded along their first axis, as `fully_shard` does unless told otherwise. Not counted:
`min_weights`, and what the user asks for (`report`, `metrics`, `finalize`). The model may lie on the meta device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, final

import torch
from torch import Tensor

from .budget.allocation import Allocation, Cut, Pool, resolve_allocation, zeros_per_layer
from .budget.plan import Plan
from .budget.ramp import resolve_ramp
from .budget.ties import HALF
from .choices import check_count, resolve_method
from .families.grouped import Grouped, GroupMethod
from .families.masked import Masked
from .families.raw import WeightView
from .families.thresholded import Thresholded, ThresholdMethod
from .layers.layer import Layer, Layers
from .layers.shards import Shards
from .method import Method
from .selection.bits import DIGITS, WINDOW
from .selection.select import Quota, quota
from .state.store import RAW
from .step.conductor import LOOK_EVERY

__all__ = ["Costs", "Traffic", "sharded_costs"]

COUNT = torch.int64.itemsize
_KNOWN = (Thresholded, Masked, Grouped)


@dataclass(frozen=True)
class Traffic:
    """All-reduces of one event: how many, and the bytes that every process hands to them."""

    collectives: int = 0
    payload: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.collectives + other.collectives, self.payload + other.payload)

    def __mul__(self, times: int) -> "Traffic":
        return Traffic(self.collectives * times, self.payload * times)

    def sent(self, ranks: int) -> float:
        """Return the bytes that leave one process, on average, if the all-reduces go round a ring.

        >>> Traffic(1, 16392).sent(ranks=4)
        24588.0
        """
        return 2 * (ranks - 1) / ranks * self.payload


@dataclass(frozen=True)
class Costs:
    """What a sparsifier adds to one process, the one that holds the largest part of the weights."""

    weights: int  # sparsified weights that it holds
    kept: int  # bytes of their raw weights or masks in the optimizer's state
    attach: Traffic  # `sparsify` itself, with a ramp that begins at 0
    first_cut: Traffic  # the first step that zeroes weights
    cut: Traffic  # a later one, if the last threshold is near; of a method with masks, only where they change
    look: Traffic  # once in `look_every` steps: for NaN, and for collapsed layers
    look_every: int = LOOK_EVERY

    @property
    def step(self) -> Traffic:
        """A usual step and its share of the look, rounded up."""
        every = self.look_every
        return self.cut + Traffic(-(-self.look.collectives // every), -(-self.look.payload // every))


def sharded_costs(
    layers: Sequence[Layer],
    ranks: int,
    *,
    sparsity: float = 0.9,
    method: str | Method = "st3",
    allocation: str | Allocation | None = None,
) -> Costs:
    """Return what `st3.sparsify` would cost each of `ranks` processes, for layers such as `st3.layers(model)` shows.

    >>> import st3
    >>> with torch.device("meta"):
    ...     model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096, bias=False) for _ in range(60)))
    >>> found = sharded_costs(st3.layers(model), ranks=8)
    >>> found.weights, found.kept, found.cut
    (125829120, 503316480, Traffic(collectives=3, payload=24596))
    """
    check_count(ranks, "ranks", least=1, meaning="the number of processes")
    the_method = resolve_method(method)
    family = the_method.family
    if family not in _KNOWN:
        raise ValueError(
            f"what {type(the_method).__name__} sends under fully_shard is not known: ask for a method with thresholds, "
            f"N:M groups or masks, such as 'st3', 'sr_ste' or 'gmp'"
        )
    usual = resolve_allocation(the_method.usual_allocation if allocation is None else allocation)
    target = sparsity if the_method.own_sparsity is None else the_method.own_sparsity
    plan = Plan(target, resolve_ramp(the_method.usual_ramp, the_method.usual_times), usual)
    kind: Any = family
    spread: list[Layer] = list(kind.fit(the_method, Layers([_sharded(layer, ranks) for layer in layers], ())))
    kind.check(the_method, spread, [], plan)
    times = 0 if ranks == 1 else _selections(spread, usual, target)
    in_step = 0 if family is Grouped else times
    held = [layer.numel // layer.shape[0] * -(-layer.shape[0] // ranks) for layer in spread]
    dtypes = [layer.parameter.dtype for layer in spread]
    # Masks are chosen from scores without ties, which are float64 where weights are in half precision.
    scores = [torch.float64 if family is Masked and dtype in HALF else dtype for dtype in dtypes]
    look = sum((_look(layer) for layer in spread), Traffic())
    every = sum((_rescale(layer, the_method) for layer in spread), Traffic())
    return Costs(
        weights=sum(held),
        kept=sum(
            numel * (dtype.itemsize if family.key == RAW else 1)
            for numel, dtype in zip(held, dtypes, strict=True)
        ),
        attach=look
        + _search(dtypes, is_warm=False) * times
        + sum((_scale(x, the_method) for x in spread), Traffic()),
        first_cut=every + _search(scores, is_warm=False) * in_step,
        cut=every + _search(scores, is_warm=True) * in_step,
        look=look,
    )


def _sharded(layer: Layer, ranks: int) -> Layer:
    """Return the layer as `fully_shard` would cut it; a number stands for the processes, since nothing is sent."""
    groups = cast(Any, (ranks,) if ranks > 1 else ())
    return replace(layer, shards=Shards(counts=groups, filters=() if 0 in layer.filters.axes else groups))


def _search(dtypes: Sequence[torch.dtype], *, is_warm: bool) -> Traffic:
    """One selection: its histograms, each with one count of all that lies below, and the smallest score above."""
    bits = torch.int64 if torch.float64 in dtypes else torch.int32
    widths = WINDOW if is_warm and bits == torch.int32 else DIGITS[bits]
    return Traffic(len(widths) + 1, sum(COUNT * ((1 << width) + 1) for width in widths) + bits.itemsize)


def _look(layer: Layer) -> Traffic:
    """The range of the weights, and the counts: of every filter, where sharding cuts them; of zeros and empty ones."""
    if not layer.shards.counts:
        return Traffic()
    counts = layer.filters.count(layer.shape) if layer.shards.filters else 2
    return Traffic(2, torch.float64.itemsize + COUNT * counts)


def _rescale(layer: Layer, method: Method) -> Traffic:
    """The means of filters that sharding cuts; the method's own equation tells how many it asks for."""
    if not layer.shards.filters or not isinstance(method, ThresholdMethod):
        return Traffic()
    means, one = _Calls(), torch.ones(1, 1)
    method.sparse_weight(WeightView(one, one.clone(), 0.5, 0.9, means))
    wide = torch.promote_types(layer.parameter.dtype, torch.float32).itemsize
    return Traffic(1, wide * layer.filters.count(layer.shape)) * means.count


def _scale(layer: Layer, method: Method) -> Traffic:
    """The sums of a factor per weight that is fixed at the start."""
    if not layer.shards.counts or not isinstance(method, GroupMethod) or not method.has_scale:
        return Traffic()
    sums, one = _Calls(), torch.ones(1, 1)
    method.first_scale(one, one, sums)
    return Traffic(1, torch.promote_types(layer.parameter.dtype, torch.float32).itemsize) * sums.count


def _selections(layers: Sequence[Layer], allocation: Allocation, sparsity: float) -> int:
    """Return how many selections the allocation makes, and the layers with a sparsity of their own."""
    common = _Counter([layer for layer in layers if layer.sparsity is None])
    if common.layers:
        allocation.cut(cast(Pool, common), quota(common.numel, sparsity))
    return common.selections + sum(
        quota(x.numel, x.sparsity).zeros > 0 for x in layers if x.sparsity is not None
    )


class _Calls:
    """A function that changes nothing, and how often it was called."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, values: Tensor) -> Tensor:
        self.count += 1
        return values


@final
class _Counter:
    """What an allocation sees of a pool; selections are counted instead of made."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers, self.selections = layers, 0
        self.numel = sum(layer.numel for layer in layers)

    def cut(self, quota: Quota, factors: Sequence[float] | None = None) -> list[Cut | None]:
        self.selections += quota.zeros > 0
        return [None] * len(self.layers)

    def cut_by_counts(self, ideal: Sequence[float], quota: Quota) -> list[Cut | None]:
        self.selections += sum(zeros > 0 for zeros in zeros_per_layer(self.layers, ideal, quota))
        return [None] * len(self.layers)
