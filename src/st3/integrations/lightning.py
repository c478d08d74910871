"""Sparse training in Lightning: one callback."""

import math
import warnings
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
from ..core.layers.shards import refuse_fsdp1
from ..core.sparsifier import Sparsifier
from ..core.sparsify import sparsify
from .lightning_best import BestAtTarget, is_a
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

    sparsifies_averages = True  # so that `sparsify` need not refuse callbacks that average weights

    def __init__(self, sparsity: float | None = None, **options: Any) -> None:
        check_options(type(self).__name__, options)
        super().__init__()
        self.sparsifier: Sparsifier | None = None
        self._options: dict[str, Any] = {"sparsity": sparsity, **options}
        self._first_step = 0
        self._total_steps = 0
        self._validated_at_target = False  # the last time
        self._best: BestAtTarget | None = None  # while training

    # ---------------------------------------------------------------- attach, before the optimizer is restored

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Check the other callbacks; undo what an interrupted `fit` has left."""
        if stage != "fit":
            return
        if any(is_a(other, "SparseTraining") for other in trainer.callbacks if other is not self):
            raise ValueError("the trainer has two SparseTraining callbacks: keep one of them")
        # Last of all: after an average is copied, and after the last checkpoint with raw weights is saved.
        trainer.callbacks = [other for other in trainer.callbacks if other is not self] + [self]
        self._first_step = trainer.global_step
        if (earlier := self._sparsifier_of(pl_module)) is not None and earlier.is_attached:
            earlier.detach()

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Go on counting where the checkpoint's run began."""
        if trainer.state.fn != "fit":
            return  # it is loaded to be tested
        first_step = checkpoint.get(FIRST_STEP, self._first_step)
        if first_step != self._first_step and trainer.strategy.restore_checkpoint_after_setup:
            raise CheckpointError(
                f"this Trainer has trained before, and its {type(trainer.strategy).__name__} restores a checkpoint too "
                f"late to count the steps anew: resume with a new Trainer"
            )
        self._first_step = first_step

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach: model and optimizers are wrapped, and optimizer states are restored after this."""
        total_steps = _count_steps(trainer) - self._first_step // len(trainer.optimizers)
        if total_steps <= 0:
            return  # `fit` was called again, and there is nothing left to train
        refuse_fsdp1(trainer.model)  # which wraps the module from outside
        options = dict(self._options)
        if (earlier := self._sparsifier_of(pl_module)) is not None and earlier.is_finalized:
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
        self._best = BestAtTarget(trainer, partial(self._counts, trainer))

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
        if trainer.state.fn == "fit" and self.sparsifier is not None:
            self._sparsify_averages(trainer)
            self._validated_at_target = self.sparsifier.at_target

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Make averages sparse: a checkpoint shares their memory."""
        if self.sparsifier is not None and self.sparsifier.is_attached:
            self._sparsify_averages(trainer)
            checkpoint[FIRST_STEP] = self._first_step
            # Lightning warns if a callback that is named here is missing when the run is resumed.
            checkpoint["callbacks"][self.state_key] = {}

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Count the zeros, or warn that the target was not reached; print the report."""
        sparsifier, best = self.sparsifier, self._best
        assert sparsifier is not None
        assert best is not None
        if _averages(trainer):
            sparsifier.apply_to(pl_module)  # holds the average by now
        if sparsifier.at_target or sparsifier.step >= self._total_steps:
            sparsifier.finalize()
        counts = self._counts(trainer)
        report = sparsifier.report()  # by every process: sharded weights are counted together
        trainer.print(report)
        best.end()
        if not trainer.is_global_zero:
            return
        if not sparsifier.is_finalized:
            target = "" if sparsifier.sparsity is None else f" of {sparsifier.sparsity:g}"
            warnings.warn(
                f"training ended at step {sparsifier.step} of {self._total_steps} with a sparsity of "
                f"{report.sparsity:.4g}{target}: the model is not finalized; go on with fit(ckpt_path=...), or train "
                f"anew with fewer steps",
                stacklevel=2,
            )
        for monitor in () if counts else best.find_missing():
            warnings.warn(
                f"there is no best checkpoint by {monitor!r}: no validation was at the target sparsity",
                stacklevel=2,
            )

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Let other callbacks go; the model stays as it is, so that a checkpoint can still be saved."""
        if self._best is not None:
            self._best.end()

    # ---------------------------------------------------------------- parts

    def _sparsifier_of(self, module: nn.Module) -> Sparsifier | None:
        """Return the sparsifier of an earlier `fit`, if it was of this module."""
        return None if self.sparsifier is None or self.sparsifier.model is not module else self.sparsifier

    def _counts(self, trainer: Any) -> bool:
        """Whether the model is at the target now, and was so when its metrics were taken."""
        assert self.sparsifier is not None
        return self.sparsifier.at_target and (self._validated_at_target or not trainer.enable_validation)

    def _log(self, trainer: Any, pl_module: Any, *, on_step: bool) -> None:
        assert self.sparsifier is not None
        if not trainer.barebones:
            metrics = {f"st3/{name}": number for name, number in self.sparsifier.metrics().items()}
            pl_module.log_dict(metrics, on_step=on_step, on_epoch=not on_step, sync_dist=not on_step)

    def _sparsify_averages(self, trainer: Any) -> None:
        assert self.sparsifier is not None
        for average in _averages(trainer):
            self.sparsifier.apply_to(average)


def _averages(trainer: Any) -> list[nn.Module]:
    """Return the averages of the trainer's `WeightAveraging` callbacks."""
    return [callback._average_model for callback in trainer.callbacks if is_a(callback, "WeightAveraging")]


def _count_steps(trainer: Any) -> int:
    """Return how many steps each optimizer makes from the trainer's first step to its last."""
    total = trainer.estimated_stepping_batches
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    for callback in trainer.callbacks:
        if is_a(callback, "GradientAccumulationScheduler") and epochs > 0 and math.isfinite(batches):
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
