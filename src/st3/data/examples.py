"""What a data set is: examples in three parts, which make whole batches of inputs and targets."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Examples", "Splits"]


class Examples(ABC):
    """Inputs with what is to be predicted from them. The caller supplies the random numbers, so they have no state."""

    device = torch.device("cpu")  # where batches are made

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw the random numbers that augment `count` examples: one row each, on the CPU."""

    @abstractmethod
    def batch(self, indices: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of these examples.

        A pure function: row i of `draws` says how example i is augmented; None means no augmentation, for evaluation.
        """

    def to(self, device: torch.device | str) -> "Examples":
        """Return the examples on `device` if they are held in memory, otherwise the same object."""
        return self


@dataclass(frozen=True)
class Splits:
    """A data set: examples to train on, to choose the best epoch by, and to report results on."""

    name: str
    train: Examples
    validation: Examples
    test: Examples
    classes: tuple[str, ...]  # that a prediction chooses among
    shape: tuple[int, ...]  # of one input: channels, height and width of a picture, length of a sequence
    task: str = "classification"  # what is done with them: see training/tasks
    fingerprint: str = ""  # of the contents, if they were read as a whole
