"""Train many runs: who is next, who has failed, who is tried again. Who trains them is the workers' business."""

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from ...training.paths import EPOCHS, SUMMARY
from ..spec import Spec, check_spec
from .wanted import Wanted
from .worker import DONE, FAILED, IN_USE, STOPPED

__all__ = ["Job", "State", "Workers", "train_all"]

State = Literal["queued", "training", "elsewhere", "done", "failed", "stopped"]
TRIES = 3  # of a run whose worker is killed
LOOK_AGAIN = 2.0  # seconds until a folder that another program uses is tried again
TICK = 1.0  # seconds between two looks at the progress


@dataclass
class Job:
    """One run to be trained, and how far it has come."""

    wanted: Wanted
    folder: Path
    data: dict[str, Any] = field(default_factory=dict)  # of the section `data`: where its files are
    machine: dict[str, Any] = field(default_factory=dict)
    state: State = "queued"
    message: str = ""
    tries: int = 0
    began: float = 0.0
    not_before: float = 0.0

    def spec(self, threads: int | None = None) -> Spec:
        """Return the spec with what holds on this machine."""
        values = self.wanted.spec.model_dump(mode="json")
        values["data"] |= self.data
        values["machine"] |= {"threads": threads, **self.machine}
        return check_spec(values)

    @property
    def epochs_left(self) -> int:
        return max(0, self.wanted.epochs_in_all - self.progress()[0])

    def progress(self) -> tuple[int, float | None]:
        """Return the number of finished epochs and the accuracy of the last one, from the run's records."""
        epochs, accuracy = 0, None
        for path in sorted(self.folder.rglob(EPOCHS)):
            lines = path.read_bytes().splitlines()
            epochs += len(lines)
            if lines:
                try:
                    accuracy = float(json.loads(lines[-1])["validation"]["accuracy"])
                except (ValueError, KeyError, TypeError):
                    continue
        return epochs, accuracy

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished, whoever has trained it."""
        return (self.folder / SUMMARY).is_file()


class Workers(ABC):
    """Those who train runs: processes here, or tasks on a cluster."""

    LOST: ClassVar[str] = "lost"  # the outcome of a run whose worker died
    slots: int  # runs that can be trained at once

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """End the workers; runs under way save themselves."""

    @abstractmethod
    def start(self, job: Job) -> None:
        """Begin to train a run. Called only while fewer than `slots` are under way."""

    @abstractmethod
    def wait(self, seconds: float) -> list[tuple[Job, str, str]]:
        """Return the runs that have ended, with outcome and message; wait for the first one at most that long."""

    @abstractmethod
    def stop(self) -> list[tuple[Job, str, str]]:
        """Let every run under way save itself; return them as `wait` does."""


def train_all(jobs: Sequence[Job], workers: Workers, on_change: Callable[[], None] = lambda: None) -> None:
    """Train all jobs; one that fails does not stop the others. Ctrl-C lets those under way save, then raises.

    A worker that is killed is replaced, and its run goes on from its checkpoint, up to three times. A run that raises
    an error is not tried again. A run that another program is training is left to it, and checked again later.
    """
    under_way = 0
    try:
        while any(job.state in ("queued", "training", "elsewhere") for job in jobs):
            now = time.monotonic()
            for job in jobs:
                if job.state in ("queued", "elsewhere") and job.is_finished:
                    job.state = "done"
            ready = [j for j in jobs if j.state in ("queued", "elsewhere") and j.not_before <= now]
            for job in ready[: workers.slots - under_way]:
                job.state, job.began, job.tries = "training", now, job.tries + 1
                workers.start(job)
                under_way += 1
            on_change()
            for job, outcome, message in workers.wait(TICK):
                under_way -= 1
                _note(job, outcome, message)
    except KeyboardInterrupt:
        for job, outcome, message in workers.stop():
            _note(job, outcome, message)
        on_change()
        raise


def _note(job: Job, outcome: str, message: str) -> None:
    job.message = message
    if outcome == Workers.LOST:
        job.state = "queued" if job.tries < TRIES else "failed"
        job.message = message if job.state == "queued" else f"{message}, {TRIES} times"
    elif outcome == IN_USE:
        job.state, job.tries = "elsewhere", job.tries - 1
        job.not_before = time.monotonic() + LOOK_AGAIN
    else:
        states: dict[str, State] = {DONE: "done", FAILED: "failed", STOPPED: "stopped"}
        job.state = states[outcome]


def processor_count() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
