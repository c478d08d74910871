"""The records of training as JSON lines: metrics of steps, epochs and layers."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..atomic import write_text
from .listener import Listener
from .paths import EPOCHS, LAYERS, RECORDS, STEPS

__all__ = ["Records", "write_json"]


class Records(Listener):
    """Appends to steps.jsonl, epochs.jsonl and layers.jsonl in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_begin(self, is_dense: bool, step: int, epoch: int) -> None:
        """Drop what was recorded after the checkpoint: it will happen again."""
        for name in RECORDS:
            path = self.folder / name
            if path.exists():
                kept = [line for line in path.read_text().splitlines() if _is_before(line, name, step, epoch)]
                write_text(path, "".join(f"{line}\n" for line in kept))

    def on_step(self, metrics: Mapping[str, Any]) -> None:
        self._append(STEPS, metrics)

    def on_epoch(self, metrics: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        if layers:
            self._append(LAYERS, {"epoch": metrics["epoch"], "layers": layers})
        self._append(EPOCHS, metrics)

    def _append(self, name: str, metrics: Mapping[str, Any]) -> None:
        line = json.dumps(metrics, allow_nan=False) + "\n"
        with (self.folder / name).open("ab") as file:
            file.write(line.encode())  # one write: a reader sees whole lines
            file.flush()
            if name == EPOCHS:
                os.fsync(file.fileno())


def write_json(path: Path, content: Any) -> None:
    """Write `content` whole or not at all."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def _is_before(line: str, name: str, step: int, epoch: int) -> bool:
    try:
        metrics = json.loads(line)
    except json.JSONDecodeError:
        return False  # cut off when the process was killed
    return bool(metrics["step"] <= step if name == STEPS else metrics["epoch"] <= epoch)
