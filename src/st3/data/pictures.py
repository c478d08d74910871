"""What a data set is: labelled pictures in three parts, which make whole batches."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Pictures", "Splits"]


class Pictures(ABC):
    """Labelled pictures. The caller supplies the random numbers of a batch, so pictures have no state."""

    labels: Tensor  # of all pictures: int64, on the CPU
    device = torch.device("cpu")  # where batches are made

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw the random numbers that augment `count` pictures: one row each, on the CPU."""

    @abstractmethod
    def batch(self, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return normalised float32 pictures (n, c, h, w) and their labels.

        A pure function: row i of `draws` says how picture i is augmented; None means no augmentation, for evaluation.
        """

    def to(self, device: torch.device | str) -> "Pictures":
        """Return the pictures on `device` if they are held in memory, otherwise the same object."""
        return self


@dataclass(frozen=True)
class Splits:
    """A data set: pictures to train on, to choose the best epoch by, and to report results on."""

    name: str
    train: Pictures
    validation: Pictures
    test: Pictures
    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # of one picture: channels, height, width
