"""One run: from a spec to a trained model with its evidence, in a folder of its own."""

import contextlib
import copy
import hashlib
import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data import Batches, Pictures, Splits
from ..data.seeds import generator_for
from ..files.weights import write_weights
from ..training.cpu import keep_freed_memory
from ..training.evaluate import evaluate
from ..training.job import BatchSource, Job, Progress
from ..training.later_epochs import LaterEpochs
from ..training.listener import Listener
from ..training.loop import fit
from ..training.optimizer import build_optimizer
from ..training.process import Process, joined
from ..training.records import Records, write_json
from ..training.sections import SettingsError
from ..training.snapshots import Snapshots
from ..training.stop import StopWish
from .build import build_model, build_sparsifier, build_splits, check_scores, wrap
from .conclusion import conclude, write_pages
from .cycle_runs import RAW, carried, summed_up
from .cycles import cycle_faults, cycle_folder
from .folder import check, claimed, finished_summary, write_spec
from .spec import ModelSpec, Spec
from .versions import record_versions

__all__ = ["ProcessLostError", "train"]

EVALUATION_BATCH = 500


class ProcessLostError(RuntimeError):
    """Another process of the run has died."""


def train(
    spec: Spec,
    folder: str | Path,
    *,
    resume: bool = False,
    model: nn.Module | None = None,
    splits: Splits | None = None,
    listeners: Sequence[Listener] = (),
    keep: int = 2,
    minutes: float = 20.0,
) -> dict[str, Any]:
    """Train what `spec` says into `folder` and return the summary; `resume` goes on where it was left.

    A `model` or `splits` of your own take the place of those that the spec names. Under `torchrun` every process calls
    this; the first one writes. `keep` checkpoints stay, one per epoch and every so many `minutes` within an epoch.
    """
    folder = Path(folder)
    if spec.cycle is not None:
        raise SettingsError(str(folder), cycle_faults(spec))
    with joined(spec.machine.device) as process, _lost_processes_named(process):
        _check_device(spec, process)
        if model is not None and ":" not in spec.model.name:  # what the spec names is not what is trained
            spec = spec.model_copy(update={"model": ModelSpec(name=f"<{type(model).__name__}>")})
        spec = check(spec, folder, resume, process)
        if splits is None:
            splits = _splits(spec, process)
        torch.manual_seed(spec.seeds.init)
        if model is None:
            model = build_model(spec.model, len(splits.classes), splits.shape[0])
        check_scores(model, spec.model.name, splits)
        _rehearse(spec if spec.cycles is None else spec.each_cycle()[-1], model, splits)
        with claimed(spec, folder, resume, process), StopWish() as wish:
            around = _Around(process, splits, listeners, keep, minutes, wish)
            if spec.cycles is not None:
                return _run_cycles(spec, folder, model, around)
            if spec.dense_twin:
                _run(spec.twin(), folder / "dense", copy.deepcopy(model), around)
            return _run(spec, folder, model, around)


def _rehearse(spec: Spec, model: nn.Module, splits: Splits) -> None:
    """Raise now what attaching the sparsifier would raise after the dense twin has been trained."""
    twin = copy.deepcopy(model)
    optimizer = build_optimizer(twin, spec.recipe.optimizer, spec.sparse.sparsity or 0.0)
    batches = -(-len(splits.train) // spec.recipe.batch_size)
    sparsifier = build_sparsifier(spec, twin, optimizer, batches)
    if sparsifier is not None:
        sparsifier.detach()


def _check_device(spec: Spec, process: Process) -> None:
    if spec.machine.sharded and process.ranks == 1:
        raise ValueError(
            "sharded weights need several processes: torchrun --nproc-per-node 2 -m st3 -- train ..."
        )
    if spec.machine.precision == "float16" and process.device.type == "cpu":
        raise ValueError("precision float16 needs a CUDA device, and there is none: use bfloat16 or float32")


@dataclass(frozen=True)
class _Around:
    """What the runs of one call share."""

    process: Process
    splits: Splits
    listeners: Sequence[Listener]
    keep: int
    minutes: float
    wish: StopWish


def _run_cycles(spec: Spec, folder: Path, model: nn.Module, around: _Around) -> dict[str, Any]:
    """Train one cycle after the other, each in a folder of its own, and sum them up."""
    process, specs, summaries = around.process, spec.each_cycle(), []
    if done := process.share(finished_summary(folder)):
        if process.is_first:
            write_pages(folder, anew=False)
        return dict(done)
    for number, cycle in enumerate(specs):
        place = folder / cycle_folder(number)
        if process.is_first and finished_summary(place) is None:
            for listener in around.listeners:
                listener.on_cycle(number, len(specs), cycle.sparse.sparsity or 0.0)
        summaries.append(_run(cycle, place, carried(model, folder, number), around))
    summary = summed_up(summaries)
    if process.is_first:
        write_json(folder / "summary.json", summary)
        write_pages(folder, anew=True)
    process.wait()
    return summary


def _run(spec: Spec, folder: Path, model: nn.Module, around: _Around) -> dict[str, Any]:
    """Train the model into its folder, unless that is done already."""
    process, splits = around.process, around.splits
    if done := process.share(finished_summary(folder)):
        if process.is_first:
            write_pages(folder, anew=False)
        return dict(done)
    if process.is_first:
        write_spec(spec, folder)
    _settle(spec)
    plain = copy.deepcopy(model)
    torch.manual_seed(_dropout_seed(spec, process))

    job = _job(spec, wrap(model, spec, process), splits, process)
    progress, snapshots = Progress(), _snapshots(spec, job, folder, around)
    snapshots.restore(progress)
    heard: list[Listener] = []
    if process.is_first:
        record_versions(folder, process, progress.step(len(job.train)))
        heard = [Records(folder), *around.listeners]
    for listener in heard:
        listener.on_begin(job.sparsifier is None, progress.step(len(job.train)), progress.epoch)
    fit(job, progress, snapshots, heard, around.wish)

    handed_on = snapshots.handed_on() if spec.cycle is not None else {}
    if job.sparsifier is not None:
        job.sparsifier.finalize()
    snapshots.load_best()
    test = _batches(spec, splits.test, process)
    accuracy = {"validation": evaluate(job, job.validation), "test": evaluate(job, test)}
    weights = snapshots.model_weights()
    summary: dict[str, Any] = {}
    if process.is_first:
        if handed_on:
            write_weights(folder / RAW, handed_on, {})
        steps = progress.step(len(job.train))
        layers = None if job.sparsifier is None else [layer.name for layer in job.sparsifier.layers]
        summary = conclude(spec, folder, plain, weights, layers, splits, progress, steps, accuracy)
    return dict(process.share(summary))


def _dropout_seed(spec: Spec, process: Process) -> int:
    """Dropout differs between the processes, and between cycles unless these are to be alike."""
    seed = spec.seeds.init + process.rank
    return generator_for(seed, spec.first_epoch).initial_seed() if spec.first_epoch else seed


def _snapshots(spec: Spec, job: Job, folder: Path, around: _Around) -> Snapshots:
    return Snapshots(
        job,
        folder / "checkpoints",
        _identity(spec, around.splits),
        keep=around.keep,
        minutes=around.minutes,
        hands_on_best=spec.cycles is not None and spec.cycles.carry == "best",
    )


def _identity(spec: Spec, splits: Splits) -> str:
    """Return what a checkpoint must have in common with the run that goes on from it."""
    pictures = [len(part) for part in (splits.train, splits.validation, splits.test)]
    text = json.dumps([spec.essence(), pictures, splits.classes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _splits(spec: Spec, process: Process) -> Splits:
    """Read the data; if it is to be downloaded, one process does that before the others read it."""
    if process.ranks == 1 or not spec.data.download:
        return build_splits(spec.data)
    splits = build_splits(spec.data) if process.is_first else None
    process.wait()
    return build_splits(spec.data) if splits is None else splits


def _job(spec: Spec, model: nn.Module, splits: Splits, process: Process) -> Job:
    recipe = spec.recipe
    train: BatchSource = _batches(spec, splits.train, process, spec.seeds.data)
    if spec.first_epoch:
        train = LaterEpochs(train, spec.first_epoch)
    optimizer = build_optimizer(model, recipe.optimizer, spec.sparse.sparsity or 0.0)
    return Job(
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


def _batches(spec: Spec, pictures: Pictures, process: Process, seed: int | None = None) -> Batches:
    size = EVALUATION_BATCH if seed is None else spec.recipe.batch_size
    return Batches(
        pictures.to(process.device),  # small sets are held where batches are made
        size,
        seed=seed,
        rank=process.rank,
        ranks=process.ranks,
        workers=spec.machine.workers,
        device=process.device,
    )


def _settle(spec: Spec) -> None:
    """Settings of the whole process."""
    if spec.machine.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
    keep_freed_memory()
    if spec.machine.threads is not None:
        torch.set_num_threads(spec.machine.threads)


@contextlib.contextmanager
def _lost_processes_named(process: Process) -> Iterator[None]:
    """Say in plain words that another process died, instead of what its socket did."""
    try:
        yield
    except RuntimeError as error:
        signs = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out waiting")
        if process.ranks > 1 and any(sign in str(error).lower() for sign in signs):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's; this message must come out first
            raise ProcessLostError(
                f"process {process.rank} of {process.ranks} lost touch with another one, which seems to have died: "
                f"look for its message, then go on with --resume ({str(error).strip().splitlines()[0][:200]})"
            ) from error
        raise
