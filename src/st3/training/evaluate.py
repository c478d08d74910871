"""Loss and accuracy over a whole set of pictures, shared among the processes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .job import BatchSource, Job
from .process import Process

__all__ = ["evaluate", "measure"]


def evaluate(job: Job, batches: BatchSource) -> dict[str, float]:
    """Return the mean loss (without label smoothing) and accuracy of the job's model as it stands."""
    return measure(job.model, job.scores, batches, job.process)


@torch.no_grad()
def measure(
    model: nn.Module, scores_of: Callable[[Tensor], Tensor], batches: BatchSource, process: Process
) -> dict[str, float]:
    """Return mean loss and accuracy of what `scores_of` makes of the pictures, the model in evaluation mode."""
    was_training = model.training
    model.eval()
    tally = torch.zeros(3, dtype=torch.float64, device=process.device)
    for pictures, labels in batches.epoch():
        scores = scores_of(pictures)
        loss = F.cross_entropy(scores, labels, reduction="sum")
        right = (scores.argmax(1) == labels).sum()
        tally += torch.stack([part.double() for part in (loss, right, torch.full_like(right, len(labels)))])
    model.train(was_training)
    loss_sum, right_answers, count = process.sum(tally).tolist()
    return {"loss": loss_sum / count, "accuracy": right_answers / count}
