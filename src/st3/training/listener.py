"""Anything that follows the progress of training: the records on disk, the terminal, TensorBoard."""

from collections.abc import Mapping
from typing import Any

__all__ = ["Listener"]


class Listener:
    """Called by the loop, in the first process only. Every method is optional."""

    def on_part(self, title: str, folder: str, number: int, count: int, target: float | None) -> None:
        """Part `number` (from 0) of the `count` parts of the run begins or continues; `on_begin` follows.

        `folder` is inside the run's folder; it is empty for that folder itself. `target` is the sparsity asked for, or
        None.
        """

    def on_begin(self, is_dense: bool, step: int, epoch: int) -> None:
        """Training begins, or continues from a checkpoint after this many steps and finished epochs."""

    def on_batch(self, epoch: int, batch: int, batches: int, rate: float) -> None:
        """A batch was trained on: number `batch` (from 1) of the epoch with that number (from 1)."""

    def on_step(self, metrics: Mapping[str, Any]) -> None:
        """Metrics were computed after this step; this happens about 500 times."""

    def on_epoch(self, metrics: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        """An epoch was finished and validated."""
