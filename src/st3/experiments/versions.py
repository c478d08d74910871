"""What a result depends on beside its spec: versions, machine, command."""

import json
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..processor import instruction_sets, processor
from ..training.paths import SESSIONS, VERSIONS
from ..training.process import Process
from ..training.records import write_json

__all__ = ["record_versions", "versions"]


def record_versions(folder: Path, process: Process, step: int) -> None:
    """Write versions.json for the session that begins, and append it to sessions.jsonl: a resumed run has several."""
    found = versions(process)
    write_json(folder / VERSIONS, found)
    with (folder / SESSIONS).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"first_step": step, **found}) + "\n")


def versions(process: Process) -> dict[str, Any]:
    """Return the versions of the software, the machine and the command of this session."""
    import st3

    device = process.device
    return {
        "st3": st3.__version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "processor": processor(),
        "instruction_sets": instruction_sets(),
        "cuda": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        "processes": process.ranks,
        "command": sys.argv,
    }


@cache  # what runs is what was loaded, whatever is committed meanwhile; and git looks at every file
def _commit() -> str | None:
    """Return the commit of st3's checkout, with a + if files were changed; None if it is installed."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    # Without a lock of the index, which would stay and block the user's commands if git takes too long and is killed.
    git = ["git", "--no-optional-locks", "-C", str(root)]
    command = [*git, "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
