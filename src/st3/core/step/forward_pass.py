"""A call before every forward pass of a model, which a copy or pickle of the model does not inherit."""

import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

__all__ = ["BeforeForward", "averaging_processes"]


class BeforeForward:
    """A forward pre-hook of one module."""

    def __init__(self, module: nn.Module, call: Callable[[nn.Module], None]) -> None:
        self._module = weakref.ref(module)
        self._call = call

    def __call__(self, module: nn.Module, args: Any) -> None:
        if self._module() is module:
            self._call(module)

    def __deepcopy__(self, memo: Any) -> Callable[[nn.Module, Any], None]:
        return _nothing

    def __reduce__(self) -> Any:
        return _make_nothing, ()


def _nothing(module: nn.Module, args: Any) -> None:
    """Do nothing."""


def _make_nothing() -> Callable[[nn.Module, Any], None]:
    return _nothing


def averaging_processes(model: nn.Module) -> Any:
    """Return the group of processes that average their gradients; None if this one is alone."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None
    wrapped = [m for m in model.modules() if isinstance(m, nn.parallel.DistributedDataParallel)]
    # The model inside a wrapper does not know of it; whoever has several processes averages over them all.
    group = wrapped[0].process_group if wrapped else dist.group.WORLD
    return group if group is not None and group.size() > 1 else None
