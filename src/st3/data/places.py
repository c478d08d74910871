"""Where data lies when the user names no folder."""

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return st3's folder in the user's cache, which XDG_CACHE_HOME moves; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "st3"
