"""The record of a run as JSON lines: figures of steps, epochs and layers."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..atomic import write_text
from .listener import Listener

__all__ = ["Records", "write_json"]

FILES = ("steps", "epochs", "layers")


class Records(Listener):
    """Appends to steps.jsonl, epochs.jsonl and layers.jsonl in the run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_begin(self, is_dense: bool, step: int, epoch: int) -> None:
        """Forget what was recorded after the checkpoint: it will happen again."""
        for name in FILES:
            path = self.folder / f"{name}.jsonl"
            if path.exists():
                kept = [line for line in path.read_text().splitlines() if _is_before(line, name, step, epoch)]
                write_text(path, "".join(f"{line}\n" for line in kept))

    def on_step(self, figures: Mapping[str, Any]) -> None:
        self._append("steps", figures)

    def on_epoch(self, figures: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        if layers:
            self._append("layers", {"epoch": figures["epoch"], "layers": layers})
        self._append("epochs", figures)

    def _append(self, name: str, figures: Mapping[str, Any]) -> None:
        line = json.dumps(figures, allow_nan=False) + "\n"
        with (self.folder / f"{name}.jsonl").open("ab") as file:
            file.write(line.encode())  # one write: a reader sees whole lines
            file.flush()
            if name == "epochs":
                os.fsync(file.fileno())


def write_json(path: Path, content: Any) -> None:
    """Write `content`, complete or not at all."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def _is_before(line: str, name: str, step: int, epoch: int) -> bool:
    try:
        figures = json.loads(line)
    except json.JSONDecodeError:
        return False  # cut off when the process was killed
    return bool(figures["step"] <= step if name == "steps" else figures["epoch"] <= epoch)
