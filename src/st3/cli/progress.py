"""The progress of training on the terminal: a live line per epoch, or plain lines if nobody is watching."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from ..experiments.spec import Spec
from ..training.listener import Listener
from ..training.tasks import Score, task_of

__all__ = ["LiveProgress", "PlainProgress", "progress_for"]


def progress_for(spec: Spec) -> "PlainProgress":
    """Return the live display if stderr is a terminal that can show it, else the plain one."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(spec, console)
    return PlainProgress(spec)


class PlainProgress(Listener):
    """One line on stderr per finished epoch."""

    def __init__(self, spec: Spec) -> None:
        self.epochs, self.target = spec.recipe.total_epochs, spec.sparse.sparsity
        self.parts_left = 0
        self._first_batch = self._done = self._total = 0
        self._run_began = self._epoch_began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Restore the terminal."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def on_part(self, title: str, folder: str, number: int, count: int, target: float | None) -> None:
        self.parts_left, self.target = count - number - 1, target
        if count > 1:
            self.say(f"{title} ({number + 1} of {count})")

    def on_begin(self, is_dense: bool, step: int, epoch: int) -> None:
        self._total = 0
        self._run_began = self._epoch_began = time.monotonic()
        if step:
            self.say(f"continuing after step {step:,}, {epoch} of {self.epochs} epochs are done")

    def on_batch(self, epoch: int, batch: int, batches: int, rate: float) -> None:
        self._done = (epoch - 1) * batches + batch
        if not self._total:
            self._total, self._first_batch = self.epochs * batches, self._done - 1

    def on_epoch(self, metrics: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        now = time.monotonic()
        self.say(
            f"{epoch_line(metrics, self.epochs, self.target)}{now - self._epoch_began:7.1f} s{self._left_text()}"
        )
        self._epoch_began = now

    def seconds_left(self) -> float:
        """Return the time left for the whole run, at the pace so far."""
        pace = (time.monotonic() - self._run_began) / max(1, self._done - self._first_batch)
        return pace * (self._total * (1 + self.parts_left) - self._done)

    def _left_text(self) -> str:
        seconds = self.seconds_left()
        return f", {clock(seconds)} left" if seconds else ""


class LiveProgress(PlainProgress):
    """A moving line for the current epoch; finished epochs scroll away above it."""

    def __init__(self, spec: Spec, console: Console) -> None:
        super().__init__(spec)
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}", markup=False),
            console=console,
            refresh_per_second=4,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, visible=False, now="")
        self._loss = self._score = self._sparsity = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def on_batch(self, epoch: int, batch: int, batches: int, rate: float) -> None:
        super().on_batch(epoch, batch, batches, rate)
        now = f"rate {rate:.3g}{self._loss}{self._score}{self._sparsity}{self._left_text()}"
        title = f"epoch {epoch}/{self.epochs}"
        self._bar.update(self._task, description=title, completed=batch, total=batches, now=now, visible=True)

    def on_step(self, metrics: Mapping[str, Any]) -> None:
        self._loss = f", loss {metrics['loss']:.3f}"
        asked = metrics["sparsity_asked"]
        aim = "" if self.target is None else f" -> {percent(self.target)}"
        self._sparsity = "" if asked is None else f", sparsity {percent(asked)}{aim}"

    def on_epoch(self, metrics: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        score, value = _score(metrics["validation"])
        self._score = f", {score.title} {value}"
        self._bar.update(self._task, visible=False)
        super().on_epoch(metrics, layers)


def epoch_line(metrics: Mapping[str, Any], epochs: int, target: float | None) -> str:
    """Return the metrics of an epoch as a line, to which the times are appended."""
    train, validation = metrics["train"], metrics["validation"]
    parts = [
        f"epoch {metrics['epoch']:{len(str(epochs))}}/{epochs}",
        f"rate {metrics['rate']:<8.3g}",
        f"loss {train['loss']:.4f}",
        f"train {_score(train)[1]:>7}",
        f"validation {_score(validation)[1]:>7}",
    ]
    if metrics["sparsity"] is not None:
        aim = "" if target is None else f" -> {percent(target)}"
        parts.append(f"sparsity {percent(metrics['sparsity']):>7}{aim}")
    return "  ".join([*parts, "best" if metrics["is_best"] else "    "])


def _score(record: Mapping[str, Any]) -> tuple[Score, str]:
    """Return the score in a record, and its value with one digit less than in a report."""
    score = task_of(record).score
    return score, score.show(record[score.name], score.digits - 1)


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss or m:ss.

    >>> clock(75), clock(3725)
    ('1:15', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
