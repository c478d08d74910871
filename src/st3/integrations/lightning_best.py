"""Lightning's `ModelCheckpoint` and `EarlyStopping`, which are to judge a model only at its target sparsity."""

from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["BestAtTarget", "is_a"]


class BestAtTarget:
    """Lets a trainer's callbacks for the best model act only while `counts()`; `end` puts everything back.

    Their methods are replaced on the objects: a checkpoint that monitors a metric must still save `last.ckpt`.
    """

    def __init__(self, trainer: Any, counts: Callable[[], bool]) -> None:
        self._counts = counts
        self._replaced: list[tuple[Any, str]] = []
        self._checkpoints: list[Any] = []
        for callback in trainer.callbacks:
            if is_a(callback, "ModelCheckpoint") and callback.monitor is not None and callback.save_top_k:
                self._checkpoints.append(callback)
                self._replace(callback, "check_monitor_top_k", self._is_best)
            elif is_a(callback, "EarlyStopping"):
                self._replace(callback, "on_validation_end", self._check_stopping)
                self._replace(callback, "on_train_epoch_end", self._check_stopping)

    def find_missing(self) -> list[str]:
        """Return the metrics by which there is no best checkpoint."""
        return [checkpoint.monitor for checkpoint in self._checkpoints if not checkpoint.best_model_path]

    def end(self) -> None:
        """Put the methods back. Idempotent."""
        for callback, name in self._replaced:
            delattr(callback, name)
        self._replaced.clear()

    def _replace(self, callback: Any, name: str, method: Callable[..., Any]) -> None:
        setattr(callback, name, partial(method, callback, getattr(callback, name)))
        self._replaced.append((callback, name))

    def _is_best(self, checkpoint: Any, ask: Callable[..., bool], trainer: Any, current: Any = None) -> bool:
        """Answer for `ModelCheckpoint.check_monitor_top_k`."""
        if self._counts():
            return ask(trainer, current)
        if checkpoint.save_top_k == -1:  # keeps all, not only the best
            metrics = checkpoint._monitor_candidates(trainer)
            checkpoint._save_checkpoint(trainer, checkpoint.format_checkpoint_name(metrics))
        if checkpoint.save_last:  # follows only where a checkpoint was saved at this step
            checkpoint._last_global_step_saved = trainer.global_step
            if checkpoint.save_top_k != -1:
                checkpoint._last_checkpoint_saved = ""  # there is none that a link could point to
        return False

    def _check_stopping(
        self, stopping: Any, check: Callable[..., None], trainer: Any, pl_module: Any
    ) -> None:
        if self._counts():
            check(trainer, pl_module)


def is_a(callback: Any, name: str) -> bool:
    """Whether the callback is of that class, be it of `lightning` or of `pytorch_lightning`."""
    return any(cls.__name__ == name for cls in type(callback).__mro__)
