"""The records of training as JSON lines: metrics of steps, epochs and layers."""

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..atomic import write_file, write_text
from .listener import Listener
from .paths import EPOCHS, LAYERS, RECORDS, STEPS
from .sealed import Line, parse_lines, seal

__all__ = ["Records", "count_missing", "write_json"]


class Records(Listener):
    """Appends to steps.jsonl, epochs.jsonl and layers.jsonl in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_begin(self, is_dense: bool, step: int, epoch: int) -> None:
        """Drop what was recorded after the checkpoint: it will happen again. Warn about records that were lost."""
        for name in RECORDS:
            path = self.folder / name
            if path.exists():
                _drop_lines(path, step, epoch)

    def on_step(self, metrics: Mapping[str, Any]) -> None:
        self._append(STEPS, metrics)

    def on_epoch(self, metrics: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        if layers:
            self._append(LAYERS, {"epoch": metrics["epoch"], "layers": layers})
        self._append(EPOCHS, metrics)

    def _append(self, name: str, metrics: Mapping[str, Any]) -> None:
        line = json.dumps(seal(metrics), allow_nan=False) + "\n"
        with (self.folder / name).open("ab") as file:
            file.write(line.encode())  # one write: a reader sees whole lines
            file.flush()
            if name == EPOCHS:
                os.fsync(file.fileno())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` whole or not at all, with a checksum."""
    write_text(path, json.dumps(seal(content), indent=2, allow_nan=False) + "\n")


def count_missing(name: str, records: Sequence[Mapping[str, Any]], step: int, epoch: int) -> int:
    """Return how many lines the file `name` lacks at its end, after that step and that epoch.

    Every epoch is recorded, and steps are recorded at equal distances, of which the first one tells.
    """
    if name != STEPS:
        return max(0, epoch - (records[-1]["epoch"] if records else 0))
    distance = records[0].get("step") if records else None
    return max(0, (step - (records[-1].get("step") or 0)) // distance) if distance else 0


def _drop_lines(path: Path, step: int, epoch: int) -> None:
    """Keep the lines up to that step, at the end of that epoch."""
    key, last = ("step", step) if path.name == STEPS else ("epoch", epoch)
    kept: list[Line] = []
    damaged, lost = 0, 0  # the last ones may belong to what is dropped
    for line in parse_lines(path.read_bytes()):
        if not isinstance(line.content.get(key), int | float):
            damaged += 1
        elif line.content[key] <= last:
            kept.append(line)
            lost = damaged
    if lost := max(lost, count_missing(path.name, [line.content for line in kept], step, epoch)):
        warnings.warn(
            f"{path} is damaged: {lost:,} of its lines are lost, which changes the report and not the model",
            stacklevel=2,
        )
    write_file(path, lambda file: file.writelines(line.text + b"\n" for line in kept))
