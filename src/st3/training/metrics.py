"""The metrics that the loop hands to its listeners, ready for JSON."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..core.counting import count_all
from .job import Job, Progress
from .switches import Switches

__all__ = ["DivergedError", "epoch_means", "epoch_metrics", "layer_metrics", "mean_loss", "step_metrics"]


class DivergedError(RuntimeError):
    """The loss is no longer a finite number."""


def mean_loss(job: Job, progress: Progress, loss: Tensor, size: int) -> float:
    """Return the mean loss of a batch of `size` predictions in all processes; raise if it is not finite."""
    mean = float(job.process.sum(loss.detach().double().clone())) / size
    _require_finite(mean, job, progress)
    return mean


def epoch_means(job: Job, progress: Progress) -> dict[str, float | None]:
    """Return loss and score over the epoch's training batches, and the mean gradient norm."""
    loss, score, predictions, norm, steps = job.process.sum(progress.tally.clone()).tolist()
    _require_finite(loss, job, progress)
    has_norm = job.scales_gradients and steps
    return {
        **job.task.metrics(loss, score, predictions),
        "gradient_norm": norm / steps if has_norm else None,
    }


def step_metrics(job: Job, progress: Progress, rate: float, loss: float) -> dict[str, Any]:
    """Return the line of the step that was just made."""
    step = progress.step(len(job.train))
    return {
        "step": step,
        "epoch": round(step / len(job.train), 4),
        "loss": loss,
        "rate": rate,
        "sparsity_asked": _asked_sparsity(job),
        "threshold": None if job.sparsifier is None else job.sparsifier.threshold,
    }


def layer_metrics(job: Job, switches: Switches | None) -> dict[str, Any]:
    """Return the zeros, the threshold and the switches of every layer; nothing for a dense model."""
    if job.sparsifier is None or switches is None:
        return {}
    layers, thresholds = list(job.sparsifier.layers), job.sparsifier.thresholds
    counts, switched = count_all(layers), switches.count()
    return {
        layer.name: {
            "weights": layer.numel,
            "zeros": counts[layer.name].zeros,
            "threshold": _finite_or_none(thresholds[layer.name]),
            "revived": switched[layer.name][0] if switched else None,
            "zeroed": switched[layer.name][1] if switched else None,
        }
        for layer in layers
    }


def epoch_metrics(
    job: Job,
    progress: Progress,
    train: Mapping[str, float | None],
    validation: Mapping[str, float],
    layers: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the line of the epoch that was just finished; raise if its validation loss is not finite."""
    _require_finite(validation["loss"], job, progress)
    rows = list(layers.values())
    has_switches = bool(rows) and rows[0]["revived"] is not None
    return {
        "epoch": progress.epoch,
        "step": progress.step(len(job.train)),
        "seconds": round(progress.seconds, 3),
        "train": {name: value for name, value in train.items() if name != "gradient_norm"},
        "validation": dict(validation),
        "sparsity": sum(row["zeros"] for row in rows) / sum(row["weights"] for row in rows) if rows else None,
        "sparsity_asked": _asked_sparsity(job),
        "at_target": job.at_target,
        "threshold": None if job.sparsifier is None else job.sparsifier.threshold,
        "switches": {key: sum(row[key] for row in rows) for key in ("revived", "zeroed")}
        if has_switches
        else None,
        "gradient_norm": train["gradient_norm"],
    }


def _asked_sparsity(job: Job) -> float | None:
    """Return the sparsity that the ramp asks for; None for a dense model or a method without a target."""
    if job.sparsifier is None or job.sparsifier.sparsity is None:
        return None
    return float(job.sparsifier.asked())


def _finite_or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _require_finite(loss: float, job: Job, progress: Progress) -> None:
    if not math.isfinite(loss):
        step = progress.step(len(job.train))
        raise DivergedError(
            f"the loss is {loss} in epoch {step // len(job.train) + 1} (about step {step}): lower the learning rate "
            f"(--set optimizer.lr=...), clip gradients (--set clip_norm=...) or use precision float32"
        )
