"""Checkpoints on disk: written whole, the newest few kept, read without running code from them."""

import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from ..atomic import write_file
from .paths import checkpoint_name, is_checkpoint

__all__ = ["CheckpointFolder"]

UNREADABLE = (RuntimeError, EOFError, OSError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile)


class CheckpointFolder:
    """The checkpoints of one run. The newest `keep` stay: an older one is the reserve if the newest is damaged."""

    def __init__(self, path: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"at least one checkpoint must be kept, got keep={keep}")
        self.path, self.keep = path, keep

    def save(self, state: dict[str, Any], step: int) -> Path:
        """Write `state` as the checkpoint of that step, then remove the oldest beyond `keep`."""
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.path / checkpoint_name(step)
        write_file(path, lambda file: torch.save(state, file))
        for old in self.files()[self.keep :]:
            old.unlink()
        for leftover in self.path.glob(".*.part"):
            leftover.unlink(missing_ok=True)  # from a run that was killed while writing
        return path

    def files(self) -> list[Path]:
        """Return the checkpoints, newest first."""
        if not self.path.is_dir():
            return []
        return sorted((path for path in self.path.iterdir() if is_checkpoint(path.name)), reverse=True)

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """Return the state in a checkpoint, on the CPU, without executing anything in it."""
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """Return the newest checkpoint that can be read; warn about those that cannot."""
        files = self.files()
        for path in files:
            try:
                return path, self.read(path)
            except UNREADABLE as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                warnings.warn(
                    f"checkpoint {path} cannot be read ({reason}); trying an older one", stacklevel=2
                )
        if files:
            raise ValueError(
                f"none of the {len(files)} checkpoints in {self.path} can be read: start again with another --run"
            )
        return None
