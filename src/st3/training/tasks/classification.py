"""Pictures, each of one class."""

from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional as F

from .score import Score
from .task import TASKS, Task

__all__ = ["Classification"]

MANY_PIXELS = 100  # a side; networks for larger pictures are those of ImageNet


@final
class Classification(Task):
    """One class per picture; the score is the share of right answers."""

    score: ClassVar[Score] = Score(
        "accuracy", "accuracy", "acc. %", "points", unit="%", factor=100.0, digits=2, most=1.0
    )
    example: ClassVar[str] = "picture"
    dtype: ClassVar[torch.dtype] = torch.float32
    usual_shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    class_names: ClassVar[tuple[str, ...]] = ("classes", "num_classes")
    size_names: ClassVar[tuple[str, ...]] = ("channels", "in_channels", "in_chans")
    class_words: ClassVar[str] = "classes"
    size_words: ClassVar[str] = "channels"
    next_command: ClassVar[str] = "st3 train --data cifar10 --download --sparsity 0.95"

    def summed_loss(self, scores: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        return F.cross_entropy(scores, targets, label_smoothing=smoothing, reduction="sum")

    def summed_score(self, scores: Tensor, targets: Tensor) -> Tensor:
        return (scores.argmax(1) == targets).sum()

    def make_inputs(
        self, batch: int, shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Tensor:
        return torch.randn(batch, *shape, generator=generator)

    def output_shape(self, batch: int, shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
        return batch, classes

    def guess_classes(self, shape: tuple[int, ...]) -> int:
        return 1000 if shape[-1] > MANY_PIXELS else 10

    def tell_resolution(self, examples: int) -> str:
        return f": each of them is {100 / examples:.2g} points of accuracy"


TASKS.register("classification")(Classification())
