"""Settings that make training on a CPU faster without changing what it computes much; `benchmarks/cpu_settings.py`."""

import ctypes
import os
import sys

import torch

__all__ = ["choose_threads", "keep_freed_memory"]

# Below so many multiply-adds per batch a second thread costs more than it brings.
SMALL_BATCH_MACS = 500_000_000

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def choose_threads(asked: int | None, batch_macs: int | None) -> int:
    """Set and return the number of threads: as asked, else one for a small job, else torch's own choice."""
    if asked is not None:
        torch.set_num_threads(asked)
    elif "OMP_NUM_THREADS" not in os.environ and batch_macs is not None and batch_macs < SMALL_BATCH_MACS:
        torch.set_num_threads(1)
    return torch.get_num_threads()


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
