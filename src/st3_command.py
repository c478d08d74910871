"""The `st3` command. It lies beside the package, whose import loads torch, so that Ctrl-C ends it quietly even then."""

import importlib.util
import os
import signal
import sys
from types import FrameType

__all__ = ["main"]

NEEDED = ("typer", "rich", "pydantic", "safetensors", "jinja2")  # beyond what `import st3` needs


def main() -> None:
    """Run the command line, or say what must be installed for it."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell may have it ignored
    if is_default:
        signal.signal(signal.SIGINT, _leave)
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            sys.exit(f"the st3 command needs {package}: pip install 'st3[train]'")
    from st3.cli.app import app

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app(prog_name="st3")


def _leave(number: int, frame: FrameType | None) -> None:
    """End the process at once: an exception raised while modules are loaded may be turned into another one."""
    os.write(2, b"stopped before the command began\n")
    os._exit(130)
