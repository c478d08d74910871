"""Checkpoints on disk: complete or not there, the newest few, read without running code from them."""

import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from ..atomic import write_file

__all__ = ["CheckpointFolder"]

NAME = re.compile(r"step-(\d{9})\.pt")


class CheckpointFolder:
    """The checkpoints of one run. The newest `keep` stay; an older one is the reserve if the newest is damaged."""

    def __init__(self, path: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"at least one checkpoint must be kept, got keep={keep}")
        self.path, self.keep = path, keep

    def save(self, state: dict[str, Any], step: int) -> Path:
        """Write `state` as the checkpoint of that step, then remove the oldest beyond `keep`."""
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.path / f"step-{step:09d}.pt"
        write_file(path, lambda file: torch.save(state, file))
        for old in self.files()[self.keep :]:
            old.unlink()
        for leftover in self.path.glob(".*.part"):
            leftover.unlink(missing_ok=True)  # of a run that was killed while it wrote
        return path

    def files(self) -> list[Path]:
        """Return the checkpoints, newest first."""
        if not self.path.is_dir():
            return []
        return sorted((p for p in self.path.iterdir() if NAME.fullmatch(p.name)), reverse=True)

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """Return the state in a checkpoint, on the CPU; nothing in it is executed."""
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """Return the newest checkpoint that can be read, on the CPU; warn about those that cannot."""
        files = self.files()
        for path in files:
            try:
                return path, torch.load(path, map_location="cpu", weights_only=True)
            except (
                RuntimeError,
                EOFError,
                OSError,
                pickle.UnpicklingError,
                zipfile.BadZipFile,
                KeyError,
            ) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                warnings.warn(
                    f"checkpoint {path} cannot be read ({reason}); trying an older one", stacklevel=2
                )
        if files:
            raise ValueError(
                f"none of the {len(files)} checkpoints in {self.path} can be read: start anew with another --run"
            )
        return None
