"""Loss and score over a whole set of examples, shared among the processes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .job import BatchSource, Job
from .process import Process
from .tasks import Task

__all__ = ["evaluate", "measure"]


def evaluate(job: Job, batches: BatchSource) -> dict[str, float]:
    """Return the mean loss (without label smoothing) and the score of the job's model."""
    return measure(job.task, job.model, job.scores, batches, job.process)


@torch.no_grad()
def measure(
    task: Task,
    model: nn.Module,
    compute_scores: Callable[[Tensor], Tensor],
    batches: BatchSource,
    process: Process,
) -> dict[str, float]:
    """Return the mean loss and the score of what the model answers in evaluation mode."""
    was_training = model.training
    model.eval()
    tally = torch.zeros(3, dtype=torch.float64, device=process.device)
    for inputs, targets in batches.epoch():
        scores = compute_scores(inputs)
        loss, score = task.summed_loss(scores, targets), task.summed_score(scores, targets)
        tally += torch.stack(
            [part.double() for part in (loss, score, torch.full_like(score, targets.numel()))]
        )
    model.train(was_training)
    return task.metrics(*process.sum(tally).tolist())
