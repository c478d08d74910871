"""Train many runs: who is next, who has failed, who is tried again. Who trains them is the workers' business."""

import json
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from ...training.paths import EPOCHS
from ...training.stop import StopRequest
from ...training.tasks import task_of
from ..folder import RunFolderError, is_in_use, read_summary
from ..spec import Spec, check_spec
from .wanted import Wanted
from .worker import DONE, FAILED, IN_USE, STOPPED

__all__ = ["Job", "State", "Workers", "WorkersError", "processor_count", "train_all"]

State = Literal["queued", "training", "elsewhere", "done", "failed", "stopped"]
OPEN: tuple[State, ...] = ("queued", "training", "elsewhere")
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

    def progress(self) -> tuple[int, str]:
        """Return the number of finished epochs and the score of the last one, from the run's records."""
        epochs, shown = 0, ""
        for path in sorted(self.folder.rglob(EPOCHS)):
            lines = path.read_bytes().splitlines()
            epochs += len(lines)
            if lines:
                try:
                    found = json.loads(lines[-1])["validation"]
                    score = task_of(found).score
                    shown = score.show(float(found[score.name]))
                except (ValueError, KeyError, TypeError):
                    continue
        return epochs, shown

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished, whoever has trained it; a damaged summary is for its training to report."""
        try:
            return read_summary(self.folder) is not None
        except RunFolderError:
            return False


class WorkersError(RuntimeError):
    """There is nobody who could train."""


class Workers(ABC):
    """Those who train runs: processes here, or tasks on a cluster."""

    LOST: ClassVar[str] = "lost"  # the outcome of a run whose worker died

    def __enter__(self) -> Self:
        return self

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many runs can be trained at once."""

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """End the workers; runs under way save themselves, unless it is Ctrl-C that ends them."""

    @abstractmethod
    def start(self, job: Job) -> None:
        """Begin to train a run. Called only while fewer than `slots` are under way."""

    @abstractmethod
    def wait(self, seconds: float) -> list[tuple[Job, str, str]]:
        """Return the runs that have ended, with outcome and message; wait for the first one at most that long."""

    @abstractmethod
    def stop(self) -> list[tuple[Job, str, str]]:
        """Let every run under way save itself; return them as `wait` does."""


def train_all(
    jobs: Sequence[Job], workers: Workers, on_change: Callable[[], None] = lambda: None
) -> signal.Signals | None:
    """Train all jobs; return None, or the signal that stopped it.

    One that fails does not stop the others, and is not tried again. A worker that is killed is replaced, and its run
    goes on from its checkpoint, up to three times. A run that another program is training is left to it, and checked
    again later. Ctrl-C and SIGTERM let the runs under way save; a second Ctrl-C raises.
    """
    with StopRequest() as stop:
        while not stop.was_made and any(job.state in OPEN for job in jobs):
            _start(jobs, workers)
            on_change()
            for job, outcome, message in workers.wait(TICK):
                _note(job, outcome, message)
        if stop.was_made:
            for job, outcome, message in workers.stop():
                _note(job, outcome, message)
        on_change()
    return signal.Signals(stop.signal_number) if stop.was_made else None


def _start(jobs: Sequence[Job], workers: Workers) -> None:
    """Give the workers as much as they can take."""
    now, free = time.monotonic(), workers.slots - sum(job.state == "training" for job in jobs)
    for job in jobs:
        if job.state not in ("queued", "elsewhere") or job.not_before > now:
            continue
        if free <= 0:
            break
        if job.is_finished:
            job.state, job.message = "done", ""
        elif is_in_use(job.folder):
            _note(job, IN_USE, "")
        else:
            job.message = "" if job.state == "elsewhere" else job.message
            job.state, job.began, job.tries = "training", now, job.tries + 1
            workers.start(job)
            free -= 1


def _note(job: Job, outcome: str, message: str) -> None:
    """Note what came of a run that was under way."""
    job.message = message
    if outcome == Workers.LOST:
        job.state = "queued" if job.tries < TRIES else "failed"
        job.message = f"again, because {message}" if job.state == "queued" else f"{message}, {TRIES} times"
    elif outcome == IN_USE:
        job.state, job.message = "elsewhere", "another program is training it"
        job.not_before = time.monotonic() + LOOK_AGAIN
    else:
        states: dict[str, State] = {DONE: "done", FAILED: "failed", STOPPED: "stopped"}
        job.state = states[outcome]


def processor_count() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
