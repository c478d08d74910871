"""The same batches from a later epoch on: a later part of a run sees what no earlier one has seen."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from .job import BatchSource

__all__ = ["LaterEpochs"]


@dataclass(frozen=True)
class LaterEpochs:
    """A source whose epoch 0 is epoch `first` of another source."""

    source: BatchSource
    first: int

    def __len__(self) -> int:
        return len(self.source)

    def size(self, number: int) -> int:
        """Return how many examples the batch holds, in all processes together."""
        return self.source.size(number)

    def epoch(self, epoch: int = 0, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this process's share of each batch, from number `first` on."""
        return self.source.epoch(self.first + epoch, first)
