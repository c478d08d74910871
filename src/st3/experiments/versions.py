"""What a result depends on beside its spec: versions, machine, command."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["versions"]


def versions(threads: int, processes: int) -> dict[str, Any]:
    import st3

    return {
        "st3": st3.__version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": threads,
        "processes": processes,
        "command": sys.argv,
    }


def _commit() -> str | None:
    """Return the commit of the library's own checkout, with a + if it was changed; None if installed."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
