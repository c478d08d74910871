"""Weights that are spread over processes (DTensor, as FSDP2's `fully_shard` makes them).

Everything in the core works on the local part of a weight. What must add up over the processes, counts and the sums
of filters that are cut by the sharding, goes through the groups kept here; no weight is ever gathered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["UNSHARDED", "Shards", "all_reduce", "is_sharded", "local", "refuse_fsdp1", "reshard", "shards_of"]


@dataclass(frozen=True)
class Shards:
    """The process groups over which one weight is spread.

    `counts`: groups whose members hold different parts of the weight. `filters`: those of them that cut through a
    filter, so that a filter's sum is complete only after a reduction.
    """

    counts: "tuple[ProcessGroup, ...]" = ()
    filters: "tuple[ProcessGroup, ...]" = ()


UNSHARDED = Shards()


def is_sharded(tensor: Tensor) -> bool:
    """Tell whether `tensor` is a DTensor."""
    # By name: importing torch.distributed.tensor costs half a second that most users need not pay.
    return type(tensor).__name__ == "DTensor"


def local(tensor: Tensor) -> Tensor:
    """Return the part of `tensor` that this process holds (sharing memory), the tensor itself if it is whole."""
    if type(tensor).__name__ != "DTensor":
        return tensor
    with torch.no_grad():
        part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part


def refuse_fsdp1(model: nn.Module) -> None:
    """Raise for a model in FullyShardedDataParallel, which keeps the weights in flat vectors without rows."""
    for module in model.modules():
        if any(cls.__name__ == "FullyShardedDataParallel" for cls in type(module).__mro__):
            raise ValueError(
                "the model is wrapped in FullyShardedDataParallel (FSDP1), which flattens weights, so that layers and "
                "filters cannot be told apart: shard it with torch.distributed.fsdp.fully_shard (FSDP2) instead"
            )


def reshard(model: nn.Module) -> None:
    """Let `fully_shard` drop the whole weights that it keeps after a forward pass, so that the shards count again."""
    for module in model.modules():
        if callable(getattr(module, "reshard", None)):
            module.reshard()  # type: ignore[operator]


def shards_of(weight: Tensor, filter_axes: Sequence[int], name: str) -> Shards:
    """Return how `weight`, whose filters lie along `filter_axes`, is spread over processes."""
    if not is_sharded(weight):
        return UNSHARDED
    placements: Sequence[Any] = weight.placements  # type: ignore[attr-defined]
    mesh: Any = weight.device_mesh  # type: ignore[attr-defined]
    if any(placement.is_partial() for placement in placements):
        raise ValueError(
            f"layer {name!r} is a partial DTensor ({placements}); its weights are not known to any process"
        )
    counts = [(mesh.get_group(i), p.dim) for i, p in enumerate(placements) if hasattr(p, "dim")]
    return Shards(
        counts=tuple(group for group, _ in counts),
        filters=tuple(group for group, dim in counts if dim not in filter_axes),
    )


def all_reduce(values: Tensor, groups: "Sequence[ProcessGroup]", *, minimum: bool = False) -> Tensor:
    """Add `values` up over `groups`, in place (or take the minimum)."""
    if not groups:
        return values
    import torch.distributed as dist

    for group in groups:
        dist.all_reduce(values, dist.ReduceOp.MIN if minimum else dist.ReduceOp.SUM, group=group)
    return values
