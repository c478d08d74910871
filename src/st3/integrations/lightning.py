"""Sparse training in Lightning: one callback."""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback  # type: ignore[assignment]
    except ImportError as missing:
        raise ImportError(
            "st3.integrations.lightning needs Lightning: pip install 'st3[lightning]'"
        ) from missing

from ..core.errors import CheckpointError
from ..core.sparsifier import Sparsifier
from ..core.sparsify import sparsify
from ..core.state.store import STEP_KEY
from .options import check_options

__all__ = ["SparseTraining"]

FIRST_STEP = "st3_first_step"  # in a checkpoint: the trainer's step at which sparse training began


class SparseTraining(Callback):
    """Makes the model of a Lightning `Trainer` sparse while it trains.

        trainer = L.Trainer(max_epochs=160, callbacks=[SparseTraining(sparsity=0.95, exclude=["head"])])

    Takes the arguments of `st3.sparsify` but `total_steps`, which is the trainer's number of optimizer steps. Every
    checkpoint of the trainer holds the whole state: `fit(ckpt_path=...)` continues bit for bit. A monitored
    `ModelCheckpoint` and `EarlyStopping` act only on validations at the target sparsity; the average of a
    `WeightAveraging` becomes as sparse as the model. At the end of training the zeros are counted and the report is
    printed. `sparsifier` is there from the beginning of `fit` on, in the process that trains.

    With manual optimization every optimizer must make one step per batch.
    """

    sparsifies_averages = (
        True  # asked by st3.sparsify, which refuses callbacks that put averages into the model
    )

    def __init__(self, sparsity: float | None = None, **options: Any) -> None:
        check_options(type(self).__name__, options)
        super().__init__()
        self.sparsifier: Sparsifier | None = None
        self._options: dict[str, Any] = {"sparsity": sparsity, **options}
        self._first_step = 0
        self._total_steps = 0
        self._validated_at_target = False  # the last time
        self._replaced: list[tuple[Any, str]] = []  # methods of other callbacks, while training

    # ---------------------------------------------------------------- attach, before the optimizer is restored

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Check the other callbacks; undo what an interrupted `fit` has left."""
        if stage != "fit":
            return
        if any(_is_a(other, type(self).__name__) for other in trainer.callbacks if other is not self):
            raise ValueError("the trainer has two SparseTraining callbacks: keep one of them")
        # Last of all: after an average is copied, and after the last checkpoint with raw weights is saved.
        trainer.callbacks = [other for other in trainer.callbacks if other is not self] + [self]
        self._first_step = trainer.global_step
        held = self.sparsifier
        if held is not None and held.is_attached and held.model is pl_module:
            held.detach()

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Go on counting where the checkpoint's run began; refuse one without raw weights."""
        if trainer.state.fn != "fit":
            return
        groups = [
            group for state in checkpoint.get("optimizer_states", ()) for group in state["param_groups"]
        ]
        if groups and not any(STEP_KEY in group for group in groups):
            raise CheckpointError(
                "the checkpoint given to fit(ckpt_path=...) holds no raw weights, so it was saved without "
                "SparseTraining or after its end: load its weights into the module (load_from_checkpoint) and call fit "
                "without ckpt_path"
            )
        is_late = self._first_step != checkpoint.get(FIRST_STEP, 0)
        self._first_step = checkpoint.get(FIRST_STEP, 0)
        held = self.sparsifier
        if is_late and held is not None and held.is_attached:  # a strategy that restores after `on_fit_start`
            held.detach()
            self.on_fit_start(trainer, pl_module)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach: model and optimizers are wrapped, and optimizer states are restored after this."""
        total_steps = _count_steps(trainer) - self._first_step
        if total_steps <= 0:
            return  # `fit` was called again, and there is nothing left to train
        options = dict(self._options)
        if (
            self.sparsifier is not None
            and self.sparsifier.is_finalized
            and self.sparsifier.model is pl_module
        ):
            options["from_sparse"] = True  # the zeros are those of the earlier `fit`
        self._total_steps, self._validated_at_target = total_steps, False
        self.sparsifier = sparsify(pl_module, trainer.optimizers, total_steps=total_steps, **options)

    # ---------------------------------------------------------------- while training

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Hold back whatever looks for the best model."""
        loop = trainer.fit_loop
        if getattr(loop, "_combined_loader_states_to_load", None):
            # Counting the steps has set up the data before the position in it was restored: set it up again.
            loop._combined_loader = None
            loop.setup_data()
        for callback in trainer.callbacks:
            if _is_a(callback, "ModelCheckpoint") and callback.monitor is not None:
                self._replace(callback, "check_monitor_top_k", self._is_best)
            elif _is_a(callback, "EarlyStopping"):
                self._replace(callback, "on_validation_end", self._check_stopping)
                self._replace(callback, "on_train_epoch_end", self._check_stopping)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the metrics as often as the trainer logs others."""
        every = trainer.log_every_n_steps
        if every and trainer.global_step % every == 0:
            self._log(trainer, pl_module, on_step=True)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the metrics at the end of the epoch."""
        self._log(trainer, pl_module, on_step=False)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Note whether this validation is at the target; make averages sparse before it sees them."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking and self.sparsifier is not None:
            self._sparsify_averages(trainer)
            self._validated_at_target = self.sparsifier.at_target

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Make averages sparse: a checkpoint shares their memory."""
        if self.sparsifier is not None and self.sparsifier.is_attached:
            self._sparsify_averages(trainer)
            checkpoint[FIRST_STEP] = self._first_step

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Count the zeros, or warn that the target was not reached; print the report."""
        self._put_back()
        sparsifier = self.sparsifier
        assert sparsifier is not None
        if any(_averages(trainer)):
            sparsifier.apply_to(pl_module)  # holds the average by now
        if sparsifier.at_target or sparsifier.step >= self._total_steps:
            sparsifier.finalize()
        report, found = sparsifier.report(), sparsifier.metrics()["sparsity"]
        trainer.print(report)
        if not trainer.is_global_zero:
            return
        if not sparsifier.is_finalized:
            target = "" if sparsifier.sparsity is None else f" of {sparsifier.sparsity:g}"
            warnings.warn(
                f"training ended at step {sparsifier.step} of {self._total_steps} with a sparsity of {found:.4g}"
                f"{target}: the model is not finalized; go on with fit(ckpt_path=...), or train anew with fewer steps",
                stacklevel=2,
            )
        for callback in trainer.callbacks:
            if (
                _is_a(callback, "ModelCheckpoint")
                and callback.monitor is not None
                and not callback.best_model_path
            ):
                warnings.warn(
                    f"there is no best checkpoint by {callback.monitor!r}: no validation was at the target sparsity",
                    stacklevel=2,
                )

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Let other callbacks go; the model stays as it is, so that a checkpoint can still be saved."""
        self._put_back()

    # ---------------------------------------------------------------- the best model

    def _replace(self, callback: Any, name: str, method: Callable[..., Any]) -> None:
        """Call `method` with the callback and its own method of that name in the place of the latter."""
        setattr(callback, name, partial(method, callback, getattr(callback, name)))
        self._replaced.append((callback, name))

    def _put_back(self) -> None:
        while self._replaced:
            callback, name = self._replaced.pop()
            delattr(callback, name)

    def _counts(self, trainer: Any) -> bool:
        """Whether the model is at the target now, and was so when the metrics were taken."""
        assert self.sparsifier is not None
        return self.sparsifier.at_target and (self._validated_at_target or not trainer.enable_validation)

    def _is_best(self, checkpoint: Any, ask: Callable[..., bool], trainer: Any, current: Any = None) -> bool:
        """Answer for `ModelCheckpoint.check_monitor_top_k`: below the target nothing is the best."""
        if self._counts(trainer):
            return ask(trainer, current)
        if checkpoint.save_top_k == -1:  # keeps all, not only the best
            metrics = checkpoint._monitor_candidates(trainer)
            checkpoint._save_checkpoint(trainer, checkpoint.format_checkpoint_name(metrics))
        if checkpoint.save_last:  # is saved only where another was
            checkpoint._last_global_step_saved = trainer.global_step
        return False

    def _check_stopping(
        self, stopping: Any, check: Callable[..., None], trainer: Any, pl_module: Any
    ) -> None:
        if self._counts(trainer):
            check(trainer, pl_module)

    # ---------------------------------------------------------------- metrics and averages

    def _log(self, trainer: Any, pl_module: Any, *, on_step: bool) -> None:
        assert self.sparsifier is not None
        if not trainer.barebones:
            metrics = {f"st3/{name}": number for name, number in self.sparsifier.metrics().items()}
            pl_module.log_dict(metrics, on_step=on_step, on_epoch=not on_step, sync_dist=not on_step)

    def _sparsify_averages(self, trainer: Any) -> None:
        assert self.sparsifier is not None
        for average in _averages(trainer):
            self.sparsifier.apply_to(average)


def _is_a(callback: Any, name: str) -> bool:
    """Whether the callback is of that class, be it of `lightning` or of `pytorch_lightning`."""
    return any(cls.__name__ == name for cls in type(callback).__mro__)


def _averages(trainer: Any) -> list[nn.Module]:
    """Return the averages of the trainer's `WeightAveraging` callbacks."""
    return [callback._average_model for callback in trainer.callbacks if _is_a(callback, "WeightAveraging")]


def _count_steps(trainer: Any) -> int:
    """Return how many steps each optimizer makes from the trainer's first step to its last."""
    total = trainer.estimated_stepping_batches
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    for callback in trainer.callbacks:
        if _is_a(callback, "GradientAccumulationScheduler") and epochs > 0 and math.isfinite(batches):
            factors = map(callback.get_accumulate_grad_batches, range(epochs))
            total = sum(math.ceil(batches / factor) for factor in factors)
    if trainer.max_steps >= 0:  # counts the steps of all optimizers
        total = min(total, math.ceil(trainer.max_steps / len(trainer.optimizers)))
    if not 0 <= total < math.inf:
        raise ValueError(
            f"SparseTraining must know the number of steps, but max_epochs={epochs} and max_steps={trainer.max_steps} "
            f"leave it open with this data: give Trainer(max_steps=...)"
        )
    return int(total)
