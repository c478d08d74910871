"""The training loop."""

import time
from collections.abc import Sequence

from .evaluate import evaluate
from .job import Job, Progress
from .listener import Listener
from .metrics import epoch_means, epoch_metrics, layer_metrics, mean_loss, step_metrics
from .snapshots import Snapshots
from .stop import Stopped, StopRequest

__all__ = ["fit"]

LINES = 500  # about how often metrics of a step are recorded


def fit(
    job: Job, progress: Progress, snapshots: Snapshots, listeners: Sequence[Listener], stop: StopRequest
) -> None:
    """Train from where `progress` stands to the last epoch; `snapshots` keeps checkpoints and the best weights."""
    recipe, task, batches = job.recipe, job.task, len(job.train)
    log_every = max(1, job.total_steps // LINES)
    for epoch in range(progress.epoch, recipe.total_epochs):
        _begin_epoch(job, epoch, progress, snapshots)
        job.model.train()
        began = time.perf_counter() - progress.seconds
        for inputs, targets in job.train.epoch(epoch, first=progress.batch):
            job.set_rate(rate := job.rate(progress.step(batches)))
            size = job.train.size(progress.batch) * targets.shape[1:].numel()  # predictions, of all processes
            share = job.process.ranks / size  # the loss is a sum, and processes average their gradients
            for _ in range(passes := job.passes):  # more than one if each pass draws random masks
                scores = job.scores(inputs)
                loss = task.summed_loss(scores, targets, recipe.label_smoothing)
                job.scaler.scale(loss * share / passes).backward()
            norm = job.update()
            if snapshots.counter is not None:
                snapshots.counter.count(epoch)
            progress.count(loss, task.summed_score(scores.detach(), targets), targets.numel(), norm)
            progress.seconds = time.perf_counter() - began
            for listener in listeners:
                listener.on_batch(epoch + 1, progress.batch, batches, rate)
            if progress.step(batches) % log_every == 0:
                metrics = step_metrics(job, progress, rate, mean_loss(job, progress, loss, size))
                for listener in listeners:
                    listener.on_step(metrics)
            must_stop, must_save = job.process.any(stop.was_made, snapshots.is_due)
            if must_stop or (must_save and progress.batch < batches):
                snapshots.save(progress)
            if must_stop:
                raise Stopped(stop.signal_number, epoch, progress.step(batches))

        rate = job.rate(progress.step(batches) - 1)
        train, validation = epoch_means(job, progress), evaluate(job, job.validation)
        progress.finish_epoch()
        score = validation[task.score.name]
        is_best = job.at_target and task.score.is_better(score, progress.best_score)
        if is_best:
            progress.best_epoch, progress.best_score = progress.epoch, score
            snapshots.keep_best()
        progress.seconds = time.perf_counter() - began
        layers = layer_metrics(job, snapshots.switches)
        metrics = epoch_metrics(job, progress, train, validation, layers) | {"rate": rate, "is_best": is_best}
        for listener in listeners:
            listener.on_epoch(metrics, layers)
        snapshots.save(progress)


def _begin_epoch(job: Job, epoch: int, progress: Progress, snapshots: Snapshots) -> None:
    """Fix the masks when the recipe's schedule is over; for a rewind, go back to the best weights."""
    recipe, sparsifier = job.recipe, job.sparsifier
    if epoch >= recipe.epochs and sparsifier is not None:
        sparsifier.freeze()
    if recipe.rewind and epoch == recipe.epochs + recipe.freeze_epochs and progress.batch == 0:
        snapshots.load_best()
        if sparsifier is not None:
            sparsifier.adopt()  # after freezing: the masks are now those of the best weights
