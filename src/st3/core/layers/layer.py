"""One weight to sparsify (`Layer`), one that is left alone (`Skipped`), and all of a model's (`Layers`)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from ...tables import text_table
from .filters import Filters
from .patterns import nearest_names
from .shards import UNSHARDED, Shards, all_reduce, is_sharded, local

__all__ = ["Layer", "Layers", "Skipped"]


@dataclass(frozen=True, eq=False)
class Layer:
    """One weight to sparsify, under its name in the model."""

    name: str
    parameter: nn.Parameter = field(repr=False)
    kind: str  # the class of the module that holds it
    filters: Filters
    shards: Shards = UNSHARDED
    sparsity: float | None = None  # a sparsity of its own, outside the common budget
    inputs: int | None = None  # the axis along which the inputs of a filter lie, where there is one
    is_direction: bool = False  # under weight_norm, which divides by the norm of each filter
    block: int = 1  # weights that are zeroed together: consecutive inputs of one output, see groups.py
    shape: tuple[int, ...] = field(init=False)  # of the whole weight, over all processes
    expert_shape: tuple[int, ...] = field(init=False)  # of one expert; `shape` where there are none
    numel: int = field(init=False)
    filter_size: int = field(init=False)  # weights of one filter: the fan-in
    is_distributed: bool = field(init=False, repr=False)  # a DTensor, of which this process may hold a part

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.parameter.shape))
        object.__setattr__(self, "expert_shape", self.shape[1:] if self.filters.experts else self.shape)
        object.__setattr__(self, "numel", self.parameter.numel())
        object.__setattr__(self, "filter_size", self.filters.size(self.shape))
        object.__setattr__(self, "is_distributed", is_sharded(self.parameter))

    @property
    def weight(self) -> Tensor:
        """The part of the weight that this process holds, sharing memory with the parameter."""
        weight = self.parameter.detach()
        return local(weight) if self.is_distributed else weight

    def filter_means(self, values: Tensor) -> Tensor:
        """Return the mean of `values` over each filter, in a form that broadcasts against them.

        `values` has the local shape of the weight, or holds some of its rows where filters are rows. With blocks, it
        holds one value for each of them.
        """
        sums = self.filters.sums(values)
        if self.shards.filters:
            sums = all_reduce(sums, self.shards.filters)
        means = sums / (self.filter_size // self.block)
        return means if self.filters.groups == 1 else self.filters.spread(means, values.shape)


@dataclass(frozen=True)
class Skipped:
    """One weight that is left alone, and why."""

    name: str
    shape: tuple[int, ...]
    reason: str
    kind: str = ""
    is_gap: bool = False  # trained and of an unknown kind, though nobody asked to leave it out


class Layers(Sequence[Layer]):
    """The layers of a model that are sparsified; `skipped` holds the others. Prints as a table."""

    def __init__(self, covered: Sequence[Layer], skipped: Sequence[Skipped]) -> None:
        self._covered = tuple(covered)
        self.skipped = tuple(skipped)

    def __len__(self) -> int:
        return len(self._covered)

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        """Return a layer by position or by name."""
        if not isinstance(key, str):
            return self._covered[key]
        for layer in self._covered:
            if layer.name in (key, f"{key}.weight"):
                return layer
        near = nearest_names(key, [layer.name for layer in self._covered])
        raise LookupError(f"no sparsified layer {key!r}; near misses: {', '.join(near) or 'none'}")

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._covered)

    def __str__(self) -> str:
        rows = [
            [layer.name, layer.kind, "x".join(map(str, layer.shape)), f"{layer.numel:,}", _budget(layer)]
            for layer in self._covered
        ]
        rows += [
            [s.name, s.kind, "x".join(map(str, s.shape)), f"{math.prod(s.shape):,}", f"skipped: {s.reason}"]
            for s in self.skipped
        ]
        total = sum(layer.numel for layer in self._covered)
        table = text_table(["layer", "kind", "shape", "weights", ""], rows, left=(0, 1, 2, 4))
        return f"{table}\n{len(self)} layer{'' if len(self) == 1 else 's'} with {total:,} weights sparsified"

    __repr__ = __str__


def _budget(layer: Layer) -> str:
    return "sparsified" if layer.sparsity is None else f"sparsity of its own: {layer.sparsity:g}"
