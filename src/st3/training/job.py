"""What the training loop is given, and how far it has come."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..core.sparsifier import Sparsifier
from .process import Process
from .recipe import Recipe
from .scores import class_scores
from .tasks import Task

__all__ = ["BatchSource", "Job", "Precision", "Progress"]

Precision = Literal["float32", "bfloat16", "float16"]
SMALLEST_RMS = 1e-5  # scaled gradients near or below it stay small, as in the program of TopK's authors


class BatchSource(Protocol):
    """Batches of inputs and targets. Each depends on its epoch and number alone, so that training can be resumed."""

    def __len__(self) -> int: ...

    def size(self, number: int) -> int:
        """Return how many examples the batch holds, in all processes together."""
        ...

    def epoch(self, epoch: int = 0, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this process's share of each batch, from number `first` on."""
        ...


@dataclass(frozen=True)
class Job:
    """A model, its optimizer, sparsifier (None: dense) and data, and how to train them."""

    task: Task
    model: nn.Module
    optimizer: Optimizer
    sparsifier: Sparsifier | None
    train: BatchSource
    validation: BatchSource
    recipe: Recipe
    process: Process
    precision: Precision = "float32"
    channels_last: bool = False
    is_sharded: bool = False
    scaler: torch.amp.GradScaler = field(init=False)

    def __post_init__(self) -> None:
        is_scaled = self.precision == "float16"
        scaler = torch.amp.GradScaler(self.process.device.type, enabled=is_scaled)
        object.__setattr__(self, "scaler", scaler)

    @property
    def at_target(self) -> bool:
        """Whether the model has reached its target sparsity: only then can it be the best."""
        return self.sparsifier is None or self.sparsifier.at_target

    @property
    def passes(self) -> int:
        """How many forward and backward passes the next batch gets."""
        return 1 if self.sparsifier is None else self.sparsifier.method.passes

    @property
    def total_steps(self) -> int:
        return self.recipe.total_epochs * len(self.train)

    @property
    def scales_gradients(self) -> bool:
        """Whether the recipe clips or scales the gradients, for which their norm is computed."""
        return self.recipe.clip_norm is not None or self.recipe.gradient_rms is not None

    def scores(self, inputs: Tensor) -> Tensor:
        """Run the model in the job's precision and return its class scores in float32."""
        if self.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        kind = torch.bfloat16 if self.precision == "bfloat16" else torch.float16
        with torch.autocast(self.process.device.type, kind, enabled=self.precision != "float32"):
            scores: Tensor = class_scores(self.model(inputs))
        return scores.float()

    def rate(self, step: int) -> float:
        """Return the learning rate of the step that comes after `step` others; a rewind takes it from its start."""
        recipe, batches = self.recipe, len(self.train)
        density = 1.0
        if recipe.rate.by_density and self.sparsifier is not None:
            density -= self.sparsifier.asked(step + 1)
        if recipe.rewind:
            before = (recipe.epochs + recipe.freeze_epochs) * batches
            step = step - before if step >= before else step
        factor: float = recipe.rate.factor(step, batches, recipe.epochs) / density**0.5
        return recipe.optimizer.lr * factor

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def update(self) -> Tensor:
        """Scale the gradients, step, clear them; return their norm before scaling (0 if nothing is scaled)."""
        norm = torch.zeros((), device=self.process.device)
        if self.scales_gradients:
            self.scaler.unscale_(self.optimizer)
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm or math.inf)
            if self.recipe.gradient_rms is not None:
                trained = [p for p in self.model.parameters() if p.requires_grad]
                rms = norm / math.sqrt(sum(p.numel() for p in trained))
                factor = self.recipe.gradient_rms / (rms + SMALLEST_RMS)
                for parameter in trained:
                    if parameter.grad is not None:
                        parameter.grad.mul_(factor)
            norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return norm.detach()


@dataclass
class Progress:
    """How far training has come. A checkpoint holds this, the model and the optimizer."""

    epoch: int = 0  # finished epochs
    batch: int = 0  # finished batches of the current epoch
    seconds: float = 0.0  # of training, in all sessions
    best_epoch: int = 0  # 0: none yet
    best_score: float | None = None  # in validation
    # sums over the current epoch: loss, score, predictions, gradient norm, steps
    tally: Tensor = field(default_factory=lambda: torch.zeros(5, dtype=torch.float64))

    def step(self, batches: int) -> int:
        """Return how many batches were trained on so far, of `batches` per epoch."""
        return self.epoch * batches + self.batch

    @torch.no_grad()
    def count(self, loss: Tensor, score: Tensor, predictions: int, norm: Tensor) -> None:
        """Add one batch to the tally, without waiting for the device."""
        was_made = norm.isfinite()  # False: gradients overflowed, and the scaler skipped the step
        count = torch.full_like(score, predictions)
        parts = [loss, score, count, torch.where(was_made, norm, 0.0), was_made]
        self.tally = self.tally.to(loss.device) + torch.stack([part.double() for part in parts])
        self.batch += 1

    def finish_epoch(self) -> None:
        self.epoch, self.batch, self.tally = self.epoch + 1, 0, torch.zeros_like(self.tally)
