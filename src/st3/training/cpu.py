"""What makes training on a CPU faster without changing what it computes; measured by `benchmarks/cpu_settings.py`."""

import ctypes
import os
import sys

__all__ = ["keep_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory for the next batch instead of returning it to the system each time.

    Activations are large and of the same sizes in every step; by default each of them is mapped anew, and its pages are
    zeroed again. Does nothing, and returns False, where the C library is not glibc or is told otherwise.
    """
    told = [name for name in os.environ if name.startswith("MALLOC_") or name == "LD_PRELOAD"]
    if not sys.platform.startswith("linux") or told:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 1 << 30) and mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1))
