"""Labelled pictures."""

from torch import Tensor

from .examples import Examples

__all__ = ["Pictures"]


class Pictures(Examples):
    """Pictures, each with one label. A batch has normalised float32 pictures (n, c, h, w) and their labels (n)."""

    labels: Tensor  # of all pictures: int64, on the CPU

    def __len__(self) -> int:
        return len(self.labels)
