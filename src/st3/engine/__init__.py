"""Sparse CPU inference: compile a trained sparse network so that its zeros cost no time."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiled import Compiled, compile

__all__ = ["Compiled", "compile"]


def __getattr__(name: str) -> Any:
    """Import lazily: `python -m st3.engine.build` must not load the library that it replaces."""
    if name in __all__:
        from . import compiled

        return getattr(compiled, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
