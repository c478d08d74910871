"""Text, each of whose characters (or bytes) is predicted from those before it."""

import math
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional as F

from .score import Score
from .task import TASKS, Task

__all__ = ["Language"]


@final
class Language(Task):
    """The next character at every place of a sequence; the score is how many bits it costs in the mean."""

    score: ClassVar[Score] = Score(
        "bits", "bits per character", "bits/char.", "bits per character", is_higher_better=False
    )
    example: ClassVar[str] = "sequence"
    dtype: ClassVar[torch.dtype] = torch.int64
    usual_shape: ClassVar[tuple[int, ...]] = (64,)
    class_names: ClassVar[tuple[str, ...]] = ("vocabulary", "vocab_size", "num_tokens")
    size_names: ClassVar[tuple[str, ...]] = ("context", "block_size", "max_len")
    class_words: ClassVar[str] = "different characters"
    size_words: ClassVar[str] = "characters"
    next_command: ClassVar[str] = 'st3 generate RUN --prompt "The"  let it write'

    def summed_loss(self, scores: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        return F.cross_entropy(
            scores.flatten(0, 1), targets.flatten(), label_smoothing=smoothing, reduction="sum"
        )

    def summed_score(self, scores: Tensor, targets: Tensor) -> Tensor:
        return self.summed_loss(scores, targets) / math.log(2)

    def make_inputs(
        self, batch: int, shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Tensor:
        return torch.randint(classes, (batch, *shape), generator=generator)

    def output_shape(self, batch: int, shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
        return (batch, *shape, classes)

    def guess_classes(self, shape: tuple[int, ...]) -> int:
        return 256

    def tell_resolution(self, examples: int) -> str:
        return ""


TASKS.register("language")(Language())
