"""The training loop."""

import time
from collections.abc import Sequence

from .evaluate import evaluate
from .figures import epoch_figures, layer_figures, mean_loss, means, step_figures
from .job import Job, Progress
from .listener import Listener
from .snapshots import Snapshots
from .stop import Stopped, StopWish

__all__ = ["fit"]

LINES = 500  # of step figures in a run


def fit(
    job: Job, progress: Progress, snapshots: Snapshots, listeners: Sequence[Listener], wish: StopWish
) -> None:
    """Train from where `progress` stands to the last epoch; the snapshots keep what was reached."""
    recipe, batches = job.recipe, len(job.train)
    log_every = max(1, job.total_steps // LINES)
    for epoch in range(progress.epoch, recipe.epochs):
        job.model.train()
        began = time.perf_counter() - progress.seconds
        for pictures, labels in job.train.epoch(epoch, first=progress.batch):
            job.set_rate(rate := job.rate(progress.step(batches)))
            size = job.train.size(progress.batch)
            share = job.process.ranks / size  # of the sum, since processes average their gradients
            for _ in range(passes := job.passes):  # more than one: each with random masks of its own
                scores = job.scores(pictures)
                loss = job.summed_loss(scores, labels, recipe.label_smoothing)
                job.scaler.scale(loss * share / passes).backward()
            norm = job.update()
            progress.count(loss, scores, labels, norm)
            progress.seconds = time.perf_counter() - began
            for listener in listeners:
                listener.on_batch(epoch + 1, progress.batch, batches, rate)
            if progress.step(batches) % log_every == 0:
                figures = step_figures(job, progress, rate, mean_loss(job, progress, loss, size))
                for listener in listeners:
                    listener.on_step(figures)
            stops, saves = job.process.any(wish.is_there, snapshots.are_due)
            if stops or (saves and progress.batch < batches):
                snapshots.save(progress)
            if stops:
                raise Stopped(wish.signal_number, epoch, progress.step(batches))

        rate = job.rate(progress.step(batches) - 1)
        train, validation = means(job, progress), evaluate(job, job.validation)
        progress.finish_epoch()
        is_best = job.at_target and validation["accuracy"] > progress.best_accuracy
        if is_best:
            progress.best_epoch, progress.best_accuracy = progress.epoch, validation["accuracy"]
            snapshots.keep_best()
        progress.seconds = time.perf_counter() - began
        layers = layer_figures(job, snapshots.switches)
        figures = epoch_figures(job, progress, train, validation, layers) | {"rate": rate, "is_best": is_best}
        for listener in listeners:
            listener.on_epoch(figures, layers)
        snapshots.save(progress)
