"""Where data sets are stored if the user names no directory."""

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return st3's folder in the user's cache (below XDG_CACHE_HOME if that is set); it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "st3"
