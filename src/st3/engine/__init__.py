"""Sparse inference on the CPU: a finished sparse network, compiled so that its zeros cost nothing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiled import Compiled, compile

__all__ = ["Compiled", "compile"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: `python -m st3.engine.build` must not load what it is about to replace."""
    if name in __all__:
        from . import compiled

        return getattr(compiled, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
