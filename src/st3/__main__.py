"""The `st3` command; also `python -m st3` and `torchrun -m st3`."""

import importlib.util
import sys

__all__ = ["main"]

NEEDED = ("typer", "rich", "pydantic", "safetensors", "jinja2")  # beyond what `import st3` needs


def main() -> None:
    """Run the command line, or say what must be installed for it."""
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            sys.exit(f"the st3 command needs {package}: pip install 'st3[train]'")
    try:
        from .cli.app import app

        app(prog_name="st3")
    except KeyboardInterrupt:  # while modules are loaded
        print("stopped before the command began", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
