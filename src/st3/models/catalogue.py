"""The networks by name. A file of its own, because every network imports it and `__init__` imports them."""

from collections.abc import Callable

from torch import nn

from ..registry import Registry

__all__ = ["MODELS"]

MODELS: Registry[Callable[..., nn.Module]] = Registry("model")
