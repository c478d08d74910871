"""Settings that speed up training on a CPU without changing its results; measured by `benchmarks/cpu_settings.py`."""

import ctypes
import os
import sys

__all__ = ["keep_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for the next batch; return whether it does.

    Activations are large and have the same sizes in every step. By default each of them is mapped again and its pages
    are zeroed again. Does nothing where the C library is not glibc, or where the user has configured it.
    """
    is_configured = any(name.startswith("MALLOC_") or name == "LD_PRELOAD" for name in os.environ)
    if not sys.platform.startswith("linux") or is_configured:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 1 << 30) and mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1))
