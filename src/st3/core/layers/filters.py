"""Where a weight tensor keeps its filters: the weights that feed one output."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor

__all__ = ["Filters"]


@dataclass(frozen=True)
class Filters:
    """The output axis of a weight: 0 for most layers, 1 for transposed convolutions and Hugging Face's Conv1D.

    A grouped transposed convolution holds `groups` blocks of inputs along axis 0, each with filters of its own. One
    weight may hold all `experts` of a mixture along axis 0: every output of every expert is then a filter.

    >>> import torch
    >>> Filters().sums(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3.],
            [7.]])
    >>> Filters(axis=1).sums(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[4., 6.]])
    >>> Filters(axis=1, experts=True).sums(torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]))
    tensor([[[ 3.],
             [ 7.]],
    <BLANKLINE>
            [[11.],
             [15.]]])
    """

    axis: int = 0
    groups: int = 1
    experts: bool = False

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes along which one filter follows another."""
        return (0, self.axis) if self.experts else (self.axis,)

    def count(self, shape: Sequence[int]) -> int:
        """Return how many filters a weight of this shape has."""
        return math.prod(shape[axis] for axis in self.axes) * self.groups

    def size(self, shape: Sequence[int]) -> int:
        """Return how many weights one filter has (the fan-in)."""
        return math.prod(shape) // max(1, self.count(shape))

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum over each filter; `spread` brings it back to the weight's shape."""
        if self.groups == 1:
            others = _axes_within(self, values.dim())
            return values.sum(others, keepdim=True) if others else values.clone()
        blocks = values.reshape(self.groups, values.shape[0] // self.groups, *values.shape[1:])
        return blocks.sum([1, *range(3, blocks.dim())], keepdim=True)

    def spread(self, per_filter: Tensor, shape: Sequence[int]) -> Tensor:
        """Return one value per filter in a form that broadcasts against a weight of `shape`."""
        if self.groups == 1:
            return per_filter
        return per_filter.expand(-1, shape[0] // self.groups, -1, *per_filter.shape[3:]).flatten(0, 1)


@lru_cache
def _axes_within(filters: Filters, dims: int) -> tuple[int, ...]:
    """Return the axes that lie within a filter, of a weight with so many axes."""
    return tuple(axis for axis in range(dims) if axis not in filters.axes)
