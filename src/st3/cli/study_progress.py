"""The progress of a study on the terminal: a live table, or one plain line per run if nobody is watching."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..experiments.grid.schedule import Job
from .progress import clock

__all__ = ["LiveStudy", "PlainStudy", "progress_for"]

ORDER = ("done", "training", "elsewhere", "queued", "failed", "stopped")


def progress_for(jobs: Sequence[Job]) -> "PlainStudy":
    """Return the live table if stderr is a terminal that can show it, else plain lines."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveStudy(jobs, console)
    return PlainStudy(jobs)


class PlainStudy:
    """One line on stderr for every run that begins or ends."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self._shown: dict[int, str] = {}
        self._began = time.monotonic()
        self._epochs = [job.epochs_left for job in jobs]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Restore the terminal."""

    def update(self) -> None:
        """Show what has changed."""
        for number, job in enumerate(self.jobs):
            now = f"{job.state} {job.message.removeprefix(job.state).strip()}".strip()
            if self._shown.get(number, "queued") != now:
                self._shown[number] = now
                print(f"{job.wanted.title}: {now}; {self.counts()}", file=sys.stderr, flush=True)

    def counts(self) -> str:
        """Return how many runs are in which state, and the time left at the pace so far."""
        found: Counter[str] = Counter(job.state for job in self.jobs)
        left = self._seconds_left()
        words = [f"{found[state]} {state}" for state in ORDER if found[state]]
        return ", ".join(words if left is None else [*words, f"{clock(left)} left"])

    def _seconds_left(self) -> float | None:
        """Return the time left, or None before the first epoch, at the end and after a stop."""
        done = left = 0
        for job, epochs in zip(self.jobs, self._epochs, strict=True):
            if job.state == "stopped":
                return None
            if job.state == "failed":
                continue
            now = 0 if job.state == "done" else epochs if job.state == "queued" else job.epochs_left
            done, left = done + epochs - now, left + now
        return (time.monotonic() - self._began) / done * left if done and left else None


class LiveStudy(PlainStudy):
    """A table of the runs under way, and counts of the others."""

    def __init__(self, jobs: Sequence[Job], console: Console) -> None:
        super().__init__(jobs)
        self._live = Live(console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._live.stop()

    def update(self) -> None:
        table = Table("run", "epoch", "validation", "time", title=self.counts())
        for job in self.jobs:
            if job.state in ("training", "elsewhere"):
                epoch, shown = job.progress()
                spent = clock(time.monotonic() - job.began) if job.state == "training" else "elsewhere"
                table.add_row(job.wanted.title, f"{epoch}/{job.wanted.epochs_in_all}", shown, spent)
        for job in self.jobs:
            if job.state == "failed":
                table.add_row(job.wanted.title, "", "failed", job.message[:60])
        self._live.update(table)
