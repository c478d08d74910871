"""Sparse training in the Hugging Face Trainer: one callback."""

import copy
import sys
import warnings
from types import FrameType
from typing import Any

from torch.optim import Optimizer

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import CallbackHandler
except ImportError as missing:
    raise ImportError(
        "st3.integrations.huggingface needs transformers and accelerate: pip install 'st3[huggingface]'"
    ) from missing

from ..core.errors import CheckpointError
from ..core.sparsifier import Sparsifier
from ..core.sparsify import sparsify
from ..core.state.store import read_step
from .options import check_options

__all__ = ["SparseTrainingCallback"]

FIRST_STEP = "st3_first_step"  # in the trainer's state: its step at which sparse training began


class SparseTrainingCallback(TrainerCallback):
    """Makes the model of a `transformers.Trainer` sparse while it trains.

        trainer = Trainer(model, args, ..., callbacks=[SparseTrainingCallback(sparsity=0.9)])

    Takes the arguments of `st3.sparsify` but `total_steps`, which is the trainer's number of update steps. Every
    checkpoint of the trainer holds the whole state: `train(resume_from_checkpoint=True)` continues bit for bit. The
    best checkpoint and early stopping count only evaluations at the target sparsity. At the end of `train()` the zeros
    are counted and the report is printed.
    """

    def __init__(self, sparsity: float | None = None, **options: Any) -> None:
        check_options(type(self).__name__, options)
        self.sparsifier: Sparsifier | None = None  # from the beginning of training on
        self._options: dict[str, Any] = {"sparsity": sparsity, **options}
        self._best_counts = False  # whether there was an evaluation at the target

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Attach: model and optimizer are wrapped, and a checkpoint is loaded."""
        _move_to_front(self)
        model, optimizer = kwargs["model"], kwargs["optimizer"]
        options = self._options
        if self.sparsifier is not None:
            if self.sparsifier.is_finalized and self.sparsifier.model is model and state.global_step == 0:
                options = {**options, "from_sparse": True}  # the zeros are those of the earlier train()
            _detach(self.sparsifier, optimizer, is_resumed=state.global_step > 0)
        counted = read_step(optimizer)
        steps: dict[str, Any] = state.stateful_callbacks  # type: ignore[assignment]  # a dict once there is a trainer
        first = steps.setdefault(FIRST_STEP, state.global_step - (counted or 0))
        if counted is None and state.global_step > first:
            raise CheckpointError(
                f"the checkpoint at step {state.global_step} of a sparse run brought no raw weights with its "
                f"optimizer: save with save_only_model=False and train without FSDP, or start anew from these weights "
                f"with from_sparse=True and without resume_from_checkpoint"
            )
        self.sparsifier = sparsify(model, optimizer, total_steps=state.max_steps - first, **options)
        self._best_counts = counted is not None and self.sparsifier.at_target
        self._forget_dense_best(state)
        is_sharded = any(layer.is_distributed for layer in self.sparsifier.layers)
        if is_sharded and args.save_strategy != "no" and state.is_world_process_zero:
            warnings.warn(
                "this run cannot be resumed from its checkpoints: under FSDP the Trainer restores the optimizer before "
                "a callback can make room for the raw weights; use DDP, or st3.sparsify with Accelerate",
                stacklevel=2,
            )

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Forget the best metric and checkpoint that an evaluation below the target has left."""
        self._forget_dense_best(state)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Let the first evaluation at the target be the first that counts."""
        if self.sparsifier is not None and not self._best_counts:
            self._best_counts = self.sparsifier.at_target

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Add the sparsifier's metrics to the trainer's own row of training metrics."""
        logs: dict[str, Any] = kwargs["logs"]
        if self.sparsifier is not None and self.sparsifier.is_attached and "loss" in logs:
            metrics = self.sparsifier.metrics()
            logs.update(metrics)
            state.log_history[-1].update(metrics)  # the trainer has copied the row already

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count the zeros of the model that the user gets (the best one is loaded by now), and print the report."""
        assert self.sparsifier is not None
        self._forget_dense_best(state)
        if self.sparsifier.at_target:
            self.sparsifier.finalize()
        report = self.sparsifier.report()  # in every process: sharded weights are counted together
        if not state.is_world_process_zero:
            return
        print(report)
        if not self.sparsifier.is_finalized:
            warnings.warn(
                f"training ended at step {state.global_step} of {state.max_steps} with a sparsity of "
                f"{report.sparsity:.4g}, below the target: the model is not finalized, and no checkpoint counts as the "
                f"best; go on with train(resume_from_checkpoint=True), or train anew with fewer steps",
                stacklevel=2,
            )

    def _forget_dense_best(self, state: TrainerState) -> None:
        if self.sparsifier is not None and not self._best_counts:
            state.best_metric = state.best_global_step = state.best_model_checkpoint = None


def _detach(sparsifier: Sparsifier, optimizer: Optimizer, *, is_resumed: bool) -> None:
    """Detach the sparsifier of an earlier `train()`; a checkpoint loaded since then stays in the optimizer."""
    loaded = copy.deepcopy(optimizer.state_dict()) if is_resumed and sparsifier.is_attached else None
    sparsifier.detach()
    if loaded is not None:
        optimizer.load_state_dict(loaded)


def _move_to_front(callback: TrainerCallback) -> None:
    """Make the callback the first of its trainer, so that its metrics reach the loggers, which come before users' own.

    A callback is not told which trainer it belongs to, so the trainer's list is looked up in the call under way.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, CallbackHandler) and callback in caller.callbacks:
            caller.callbacks.sort(key=lambda other: other is not callback)
            return
        frame = frame.f_back
