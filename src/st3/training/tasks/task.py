"""What a task is: what a network is given, what it is trained to predict, and how its answers are scored.

The loop, the records, the page and the commands ask the task; nothing else knows whether pictures are classified or
text is continued. A task is one file beside this one, and its data sets name it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...registry import Registry
from .score import Score

__all__ = ["TASKS", "Task", "name_of", "task_of"]


class Task(ABC):
    """A task. Inputs and targets have one row per example; a network returns scores with one more axis, the classes."""

    score: ClassVar[Score]  # no other task has one of this name
    example: ClassVar[str]  # what one example is called
    dtype: ClassVar[torch.dtype]  # of the inputs
    usual_shape: ClassVar[tuple[int, ...]]  # of one input, as an example in messages
    # The names of a network's arguments for the number of classes, and for the first axis of an input. Metadata have
    # the first name of each.
    class_names: ClassVar[tuple[str, ...]]
    size_names: ClassVar[tuple[str, ...]]
    class_words: ClassVar[str]  # what a prediction chooses among
    size_words: ClassVar[str]  # what the first axis of an input counts
    next_command: ClassVar[str]  # of st3, to try after a run; RUN stands for its folder

    @abstractmethod
    def summed_loss(self, scores: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the loss, summed over all predictions of a batch."""

    @abstractmethod
    def summed_score(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the score, summed over all predictions of a batch."""

    @abstractmethod
    def make_inputs(
        self, batch: int, shape: tuple[int, ...], classes: int, generator: torch.Generator
    ) -> Tensor:
        """Return random inputs, to time a network or to compare two."""

    @abstractmethod
    def output_shape(self, batch: int, shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
        """Return the shape of the scores that a network must return."""

    @abstractmethod
    def guess_classes(self, shape: tuple[int, ...]) -> int:
        """Return for how many classes an untrained network is usually built."""

    @abstractmethod
    def tell_resolution(self, examples: int) -> str:
        """Return what one of the tested examples weighs, to follow their number; empty if that says little."""

    @property
    def examples(self) -> str:
        """Several of them; also the key of their numbers in a summary."""
        return f"{self.example}s"

    def blank(self, batch: int, shape: tuple[int, ...]) -> Tensor:
        """Return inputs of zeros, to look at what a network does with their shape."""
        return torch.zeros(batch, *shape, dtype=self.dtype)

    def sizes(self, classes: int, shape: tuple[int, ...]) -> dict[str, int]:
        """Return what a network must know about the data, as metadata name it."""
        return {self.class_names[0]: classes, self.size_names[0]: shape[0]}

    def metrics(self, loss: float, score: float, predictions: float) -> dict[str, float]:
        """Return the means that records have, from sums over predictions."""
        return {"loss": loss / predictions, self.score.name: score / predictions}


TASKS: Registry[Task] = Registry("task")


def name_of(task: Task) -> str:
    """Return the name that a task is registered under."""
    return next(name for name in TASKS if TASKS[name] is task)


def task_of(record: Mapping[str, Any] | None) -> Task:
    """Return the task whose score is in a record; classification, the first there was, if there is none.

    >>> task_of({"loss": 1.1, "bits": 1.6}).example
    'sequence'
    """
    found = (TASKS[name] for name in TASKS if TASKS[name].score.name in (record or {}))
    return next(found, TASKS["classification"])
