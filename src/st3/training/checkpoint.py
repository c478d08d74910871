"""Checkpoints on disk: written whole, the newest few kept, read without running code from them."""

import warnings
from pathlib import Path
from typing import Any, BinaryIO

import torch

from ..atomic import write_file
from ..files.torch_file import read_torch_file
from .paths import checkpoint_name, is_checkpoint

__all__ = ["CheckpointFolder"]


class CheckpointFolder:
    """The checkpoints of one run. The newest `keep` stay: an older one is the reserve if the newest is damaged."""

    def __init__(self, path: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"at least one checkpoint must be kept, got keep={keep}")
        self.path, self.keep = path, keep

    def save(self, state: dict[str, Any], step: int) -> Path:
        """Write `state` as the checkpoint of that step, then remove the oldest beyond `keep`.

        Checkpoints of later steps are removed too: they could not be read, so training went on from an older one.
        """
        self.path.mkdir(exist_ok=True)
        path = self.path / checkpoint_name(step)
        write_file(path, lambda file: _save(state, file))
        files = self.files()
        number = files.index(path)
        for other in files[:number] + files[number + self.keep :]:
            other.unlink()
        return path

    def files(self) -> list[Path]:
        """Return the checkpoints, newest first."""
        if not self.path.is_dir():
            return []
        return sorted((path for path in self.path.iterdir() if is_checkpoint(path.name)), reverse=True)

    @staticmethod
    def read(path: Path) -> dict[str, Any]:
        """Return the state in a checkpoint; ValueError says why it cannot be read."""
        state: dict[str, Any] = read_torch_file(path)
        return state

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """Return the newest checkpoint that can be read; warn about those that cannot."""
        files = self.files()
        for path in files:
            try:
                return path, self.read(path)
            except ValueError as error:
                reason = str(error).splitlines()[0]
                warnings.warn(
                    f"checkpoint {path} cannot be read ({reason}); trying an older one", stacklevel=2
                )
        if files:
            raise ValueError(
                f"none of the {len(files)} checkpoints in {self.path} can be read: start again with another --run"
            )
        return None


def _save(state: dict[str, Any], file: BinaryIO) -> None:
    """Save with checksums, even where the user's program has turned them off for its own files."""
    asked = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(True)
    try:
        torch.save(state, file)
    finally:
        torch.serialization.set_crc32_options(asked)
