"""Loss and accuracy over a whole set of pictures, shared among the processes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .job import BatchSource, Job
from .process import Process

__all__ = ["evaluate", "measure"]


def evaluate(job: Job, batches: BatchSource) -> dict[str, float]:
    """Return the mean loss (without label smoothing) and the accuracy of the job's model."""
    return measure(job.model, job.scores, batches, job.process)


@torch.no_grad()
def measure(
    model: nn.Module, compute_scores: Callable[[Tensor], Tensor], batches: BatchSource, process: Process
) -> dict[str, float]:
    """Return the mean loss and the accuracy of the scores, with the model in evaluation mode."""
    was_training = model.training
    model.eval()
    tally = torch.zeros(3, dtype=torch.float64, device=process.device)
    for pictures, labels in batches.epoch():
        scores = compute_scores(pictures)
        loss = F.cross_entropy(scores, labels, reduction="sum")
        right = (scores.argmax(1) == labels).sum()
        tally += torch.stack([part.double() for part in (loss, right, torch.full_like(right, len(labels)))])
    model.train(was_training)
    loss_sum, right_answers, count = process.sum(tally).tolist()
    return {"loss": loss_sum / count, "accuracy": right_answers / count}
