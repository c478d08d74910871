"""The networks by name. A separate file, because every network imports it and `__init__` imports every network."""

from collections.abc import Callable

from torch import nn

from ..registry import Registry

__all__ = ["MODELS", "Models"]

Build = Callable[..., nn.Module]  # called as build(classes=..., channels=..., **arguments)
Shape = tuple[int, int, int]  # of one picture: channels, height, width


class Models(Registry[Build]):
    """Functions that build a network, by name, with the pictures that each was made for.

    >>> MODELS.shape("resnet50")
    (3, 224, 224)
    """

    def __init__(self) -> None:
        super().__init__("model")
        self._shapes: dict[str, Shape] = {}

    def register(self, name: str, *, shape: Shape = (3, 32, 32)) -> Callable[[Build], Build]:
        """Return a decorator that files its argument under `name`; `shape` is that of the usual picture."""
        file = super().register(name)

        def file_with_shape(build: Build) -> Build:
            file(build)
            self._shapes[name] = shape
            return build

        return file_with_shape

    def shape(self, name: str) -> Shape:
        """Return channels, height and width of the pictures that the network `name` was made for."""
        self[name]  # a misspelt name is answered with a suggestion
        return self._shapes[name]


MODELS = Models()
