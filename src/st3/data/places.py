"""Where data sets are stored if the user names no directory."""

import os
from pathlib import Path

from .errors import DataError

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return st3's folder in the user's cache (below XDG_CACHE_HOME if that is set); it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "st3"
    except RuntimeError:
        raise DataError(
            "there is no home folder to keep data sets in: set HOME or XDG_CACHE_HOME, or give --data-dir"
        ) from None
