"""Sparse CPU inference: compile a trained sparse network so that its zeros cost no time."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiled import Compiled, compile
    from .loaded import Loaded, load

__all__ = ["Compiled", "Loaded", "compile", "load"]


def __getattr__(name: str) -> Any:
    """Import lazily: `python -m st3.engine.build` must not load the library that it replaces."""
    if name in __all__:
        from . import compiled, loaded

        return getattr(loaded if name in loaded.__all__ else compiled, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
