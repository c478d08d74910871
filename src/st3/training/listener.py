"""Who wants to know how training goes: the record, the terminal, TensorBoard."""

from collections.abc import Mapping
from typing import Any

__all__ = ["Listener"]


class Listener:
    """Told by the loop what happens, in the first process only; every method is optional."""

    def on_cycle(self, number: int, count: int, sparsity: float) -> None:
        """In a run of `count` cycles, the one of that number (from 0) begins or goes on; `on_begin` follows."""

    def on_begin(self, is_dense: bool, step: int, epoch: int) -> None:
        """A run begins, or goes on from a checkpoint after so many steps and finished epochs."""

    def on_batch(self, epoch: int, batch: int, batches: int, rate: float) -> None:
        """A batch was done: number `batch` (from 1) of the epoch with that number (from 1)."""

    def on_step(self, figures: Mapping[str, Any]) -> None:
        """Some figures are known after this step; about 500 times in a run."""

    def on_epoch(self, figures: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        """An epoch was finished and validated."""
