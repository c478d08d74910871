"""What a data set is: labelled pictures that make whole batches, in three parts."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Pictures", "Splits"]


class Pictures(ABC):
    """Labelled pictures. Whoever wants a batch brings the random numbers, so nothing here remembers anything."""

    labels: Tensor  # int64, all of them, on the CPU
    device = torch.device("cpu")  # where batches are made

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw the random numbers that augment `count` pictures: one row each, on the CPU."""

    @abstractmethod
    def batch(self, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return normalised float32 pictures (n, c, h, w) and their labels.

        A pure function: row i of `draws` says how picture i is augmented, and None gives pictures as for evaluation.
        """

    def to(self, device: torch.device | str) -> "Pictures":
        """Return these pictures held on `device` if they are held in memory, else themselves."""
        return self


@dataclass(frozen=True)
class Splits:
    """A data set: pictures to learn from, to choose the best epoch with, and to report on."""

    name: str
    train: Pictures
    validation: Pictures
    test: Pictures
    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # of one picture: channels, height, width
