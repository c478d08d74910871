"""The networks by name. A separate file, because every network imports it and `__init__` imports every network."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from ..registry import Registry

__all__ = ["MODELS", "Inputs", "Models"]

# Called as build(classes=..., channels=..., **arguments); the names of the first two are those of the task.
Build = Callable[..., nn.Module]
Shape = tuple[int, ...]  # of one input: channels, height, width of a picture; length of a sequence


@dataclass(frozen=True)
class Inputs:
    """What a network was made for."""

    shape: Shape = (3, 32, 32)
    task: str = "classification"  # a name in training/tasks


class Models(Registry[Build]):
    """Functions that build a network, by name, with the inputs that each was made for.

    >>> MODELS.inputs("resnet50")
    Inputs(shape=(3, 224, 224), task='classification')
    """

    def __init__(self) -> None:
        super().__init__("model")
        self._inputs: dict[str, Inputs] = {}

    def register(
        self, name: str, *, shape: Shape = Inputs.shape, task: str = Inputs.task
    ) -> Callable[[Build], Build]:
        """Return a decorator that files its argument under `name`; `shape` is that of the usual input."""
        file = super().register(name)

        def file_with_inputs(build: Build) -> Build:
            file(build)
            self._inputs[name] = Inputs(shape, task)
            return build

        return file_with_inputs

    def inputs(self, name: str) -> Inputs:
        """Return what the network `name` was made for."""
        self[name]  # a misspelt name is answered with a suggestion
        return self._inputs[name]

    def shape(self, name: str) -> Shape:
        """Return the shape of the inputs that the network `name` was made for."""
        return self.inputs(name).shape


MODELS = Models()
