"""Build the network of a stored model again, and load its weights."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..files.fit import shape_text
from ..training.sections import SettingsError
from ..training.tasks import Task
from .build import build_model
from .spec import ModelSpec
from .stored_model import StoredModel, load_into

__all__ = ["Rebuilt", "check_shape", "rebuild"]


@dataclass(frozen=True)
class Rebuilt:
    """A network with its weights, in eval mode, and what it takes."""

    network: nn.Module
    task: Task
    classes: int

    def make_inputs(self, batch: int, shape: tuple[int, ...]) -> Tensor:
        """Return random inputs, the same every time."""
        return self.task.make_inputs(batch, shape, self.classes, torch.Generator().manual_seed(0))


def rebuild(stored: StoredModel, made_by: ModelSpec, shape: tuple[int, ...] | None) -> Rebuilt:
    """Return the network; `shape` is that of one input (channels, height, width of a picture), if known."""
    task, about = stored.task(made_by), stored.about.get("model", {})
    check_shape(task, shape)
    size = about.get(task.size_names[0]) or (shape or task.usual_shape)[0]
    if shape is not None and shape[0] != size:
        raise SettingsError(
            "--input",
            [
                f"{shape_text(shape)} has {shape[0]} {task.size_words}, but the model in {stored.path} takes "
                f"{task.examples} of {size}"
            ],
        )
    classes = about.get(task.class_names[0]) or _guess_classes(stored, made_by, task, size)
    network = load_into(build_model(made_by, task, classes, size), stored, made_by.name)
    return Rebuilt(network, task, classes)


def check_shape(task: Task, shape: tuple[int, ...] | None) -> None:
    """Raise if no input of the task has so many axes."""
    if shape is not None and len(shape) != len(task.usual_shape):
        raise SettingsError(
            "--input",
            [
                f"{shape_text(shape)} is not the shape of a {task.example}, such as {shape_text(task.usual_shape)}"
            ],
        )


def _guess_classes(stored: StoredModel, made_by: ModelSpec, task: Task, size: int) -> int:
    """Return for how many classes the weights are: the row count in which they differ from a model for ten."""
    guess = 10
    rows = {
        stored.weights[name].shape[0]
        for name, tensor in build_model(made_by, task, guess, size).state_dict().items()
        if name in stored.weights and tensor.dim() and stored.weights[name].dim() == tensor.dim()
        and stored.weights[name].shape != tensor.shape and stored.weights[name].shape[1:] == tensor.shape[1:]
    }  # fmt: skip
    return rows.pop() if len(rows) == 1 else guess
