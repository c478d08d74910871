"""Train one part of a run: from a spec and a network to a trained model with its records, in its own folder."""

import copy
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..atomic import write_text
from ..data import Batches, Examples, Splits
from ..data.seeds import generator_for
from ..files.weights import write_weights
from ..training.cpu import keep_freed_memory
from ..training.evaluate import evaluate
from ..training.job import BatchSource, Job, Progress
from ..training.later_epochs import LaterEpochs
from ..training.listener import Listener
from ..training.loop import fit
from ..training.optimizer import build_optimizer
from ..training.paths import CHECKPOINTS, RAW_WEIGHTS, SWITCHES
from ..training.process import Process
from ..training.records import Records
from ..training.snapshots import Snapshots
from ..training.stop import StopRequest
from ..training.tasks import TASKS
from .build import build_sparsifier, wrap
from .conclusion import conclude, reuse_summary
from .essence import essence
from .folder import write_spec
from .spec import Spec
from .versions import record_versions

__all__ = ["Session", "train_part"]

EVALUATION_BATCH = 500


@dataclass(frozen=True)
class Session:
    """What all parts of a run share."""

    process: Process
    splits: Splits
    listeners: Sequence[Listener]
    keep: int  # checkpoints
    minutes: float  # between two checkpoints within an epoch
    stop: StopRequest


def train_part(spec: Spec, folder: Path, model: nn.Module, session: Session) -> dict[str, Any]:
    """Train the model into its folder and return the summary; if that is done already, only return it."""
    process, splits = session.process, session.splits
    if (done := reuse_summary(folder, process)) is not None:
        return done
    if process.is_first:
        write_spec(spec, folder)
    _configure_process(spec)
    plain = copy.deepcopy(model)
    torch.manual_seed(_dropout_seed(spec, process))

    job = _job(spec, wrap(model, spec, process), splits, process)
    progress, snapshots = Progress(), _snapshots(spec, job, folder, session)
    snapshots.restore(progress)
    listeners: list[Listener] = []
    if process.is_first:
        record_versions(folder, process, progress.step(len(job.train)))
        listeners = [Records(folder), *session.listeners]
    for listener in listeners:
        listener.on_begin(job.sparsifier is None, progress.step(len(job.train)), progress.epoch)
    fit(job, progress, snapshots, listeners, session.stop)

    hands_over = spec.part is not None and spec.part.hands_over is not None
    raw_weights = snapshots.final_raw_weights() if hands_over else {}
    if job.sparsifier is not None:
        job.sparsifier.finalize()
    if snapshots.counter is not None and process.is_first:
        write_text(folder / SWITCHES, json.dumps(snapshots.counter.histograms(), indent=1))
    snapshots.load_best()
    test = _batches(spec, splits.test, process)
    scores = {"validation": evaluate(job, job.validation), "test": evaluate(job, test)}
    weights = snapshots.model_weights()
    summary: dict[str, Any] = {}
    if process.is_first:
        if raw_weights:
            write_weights(folder / RAW_WEIGHTS, raw_weights, {})
        steps = progress.step(len(job.train))
        layers = None if job.sparsifier is None else [layer.name for layer in job.sparsifier.layers]
        summary = conclude(spec, folder, plain, weights, layers, splits, progress, steps, scores)
    return dict(process.share(summary))


def _configure_process(spec: Spec) -> None:
    """Apply the machine settings that hold for the whole process."""
    if spec.machine.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
    keep_freed_memory()
    if spec.machine.threads is not None:
        torch.set_num_threads(spec.machine.threads)


def _first_epoch(spec: Spec) -> int:
    """Return the epoch of the stream of examples at which this part begins."""
    return 0 if spec.part is None else spec.part.first_epoch


def _dropout_seed(spec: Spec, process: Process) -> int:
    """Return a seed that differs between processes, and between parts that see different examples."""
    seed, first = spec.seeds.init + process.rank, _first_epoch(spec)
    return generator_for(seed, first).initial_seed() if first else seed


def _job(spec: Spec, model: nn.Module, splits: Splits, process: Process) -> Job:
    recipe = spec.recipe
    train: BatchSource = _batches(spec, splits.train, process, spec.seeds.data)
    if first := _first_epoch(spec):
        train = LaterEpochs(train, first)
    optimizer = build_optimizer(model, recipe.optimizer, spec.sparse.sparsity or 0.0)
    return Job(
        task=TASKS[splits.task],
        model=model,
        optimizer=optimizer,
        sparsifier=build_sparsifier(spec, model, optimizer, len(train)),
        train=train,
        validation=_batches(spec, splits.validation, process),
        recipe=recipe,
        process=process,
        precision=spec.machine.precision,
        channels_last=spec.machine.channels_last,
        is_sharded=spec.machine.sharded,
    )


def _batches(spec: Spec, examples: Examples, process: Process, seed: int | None = None) -> Batches:
    """Return batches for training, with a seed, or for evaluation."""
    return Batches(
        examples.to(process.device),  # small sets are kept where their batches are made
        EVALUATION_BATCH if seed is None else spec.recipe.batch_size,
        seed=seed,
        rank=process.rank,
        ranks=process.ranks,
        workers=spec.machine.workers,
        device=process.device,
    )


def _snapshots(spec: Spec, job: Job, folder: Path, session: Session) -> Snapshots:
    return Snapshots(
        job,
        folder / CHECKPOINTS,
        _identity(spec, session.splits),
        keep=session.keep,
        minutes=session.minutes,
        keeps_best_raw=spec.part is not None and spec.part.hands_over == "best",
        switch_windows=spec.record.switch_windows,
    )


def _identity(spec: Spec, splits: Splits) -> str:
    """Return what a checkpoint must have in common with the part that resumes from it."""
    counts = [len(part) for part in (splits.train, splits.validation, splits.test)]
    contents = [splits.fingerprint] if splits.fingerprint else []
    text = json.dumps([essence(spec), counts, splits.classes, *contents], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
