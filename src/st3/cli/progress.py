"""How training goes, on the terminal: a live line per epoch, or plain lines where nobody can watch."""

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
        self.has_twin = spec.dense_twin
        self.epochs, self.target = spec.recipe.epochs, spec.sparse.sparsity
        self.is_twin = False
        self.cycles_left = 0
        self._first_batch = self._done = self._total = 0
        self._run_began = self._epoch_began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Leave the terminal as it was."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def on_cycle(self, number: int, count: int, sparsity: float) -> None:
        self.cycles_left, self.target = count - number - 1, sparsity
        self.say(
            f"cycle {number}, {number + 1} of {count}: {f'sparsity {sparsity:.6g}' if sparsity else 'dense'}"
        )

    def on_begin(self, is_dense: bool, step: int, epoch: int) -> None:
        self._total, self.is_twin = 0, is_dense and self.has_twin
        self._run_began = self._epoch_began = time.monotonic()
        if self.has_twin:
            self.say("dense twin, 1 of 2" if is_dense else "sparse, 2 of 2")
        if step:
            self.say(f"going on after step {step:,}, {epoch} of {self.epochs} epochs are done")

    def on_batch(self, epoch: int, batch: int, batches: int, rate: float) -> None:
        self._done = (epoch - 1) * batches + batch
        if not self._total:
            self._total, self._first_batch = self.epochs * batches, self._done - 1

    def on_epoch(self, figures: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        now = time.monotonic()
        self.say(
            f"{epoch_line(figures, self.epochs, self.target)}{now - self._epoch_began:7.1f} s{self._left_text()}"
        )
        self._epoch_began = now

    def seconds_left(self) -> float:
        """Return the time to the end of the whole run, at the pace so far."""
        pace = (time.monotonic() - self._run_began) / max(1, self._done - self._first_batch)
        return pace * (self._total * (1 + self.is_twin + self.cycles_left) - self._done)

    def _left_text(self) -> str:
        seconds = self.seconds_left()
        return f", {clock(seconds)} left" if seconds else ""


class LiveProgress(PlainProgress):
    """A line that moves while an epoch is under way; finished epochs scroll away above it."""

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
        self._loss = self._accuracy = self._sparsity = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def on_batch(self, epoch: int, batch: int, batches: int, rate: float) -> None:
        super().on_batch(epoch, batch, batches, rate)
        now = f"rate {rate:.3g}{self._loss}{self._accuracy}{self._sparsity}{self._left_text()}"
        title = f"epoch {epoch}/{self.epochs}"
        self._bar.update(self._task, description=title, completed=batch, total=batches, now=now, visible=True)

    def on_step(self, figures: Mapping[str, Any]) -> None:
        self._loss = f", loss {figures['loss']:.3f}"
        asked = figures["sparsity_asked"]
        self._sparsity = "" if asked is None else f", sparsity {percent(asked)} -> {percent(self.target)}"

    def on_epoch(self, figures: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        self._accuracy = f", accuracy {percent(figures['validation']['accuracy'])}"
        self._bar.update(self._task, visible=False)
        super().on_epoch(figures, layers)


def epoch_line(figures: Mapping[str, Any], epochs: int, target: float) -> str:
    """Return the figures of an epoch as a line without its end, which tells the time."""
    train, validation = figures["train"], figures["validation"]
    parts = [
        f"epoch {figures['epoch']:{len(str(epochs))}}/{epochs}",
        f"rate {figures['rate']:<8.3g}",
        f"loss {train['loss']:.4f}",
        f"train {percent(train['accuracy']):>7}",
        f"validation {percent(validation['accuracy']):>7}",
    ]
    if figures["sparsity"] is not None:
        parts.append(f"sparsity {percent(figures['sparsity']):>7} -> {percent(target)}")
    return "  ".join([*parts, "best" if figures["is_best"] else "    "])


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
