"""Workers on this machine: one process per run, the processor's threads divided among them."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from .schedule import Job, Workers
from .worker import STOPPED

__all__ = ["LocalWorkers"]


class _Process:
    """One worker and the run it is training."""

    def __init__(self, threads: int, log: IO[bytes]) -> None:
        self.job: Job | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "st3.experiments.grid.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # Ctrl-C reaches this process only, which tells the workers
        )

    @property
    def output(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def send(self, job: Job, threads: int) -> None:
        self.job = job
        task = {"spec": job.spec(threads).model_dump(mode="json"), "folder": str(job.folder)}
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(task)}\n".encode())
        self.process.stdin.flush()

    def close(self) -> None:
        """End the input: the worker lets its run save, and ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()


class LocalWorkers(Workers):
    """Processes of this machine, kept warm from run to run."""

    def __init__(self, count: int, threads: int, log: Path) -> None:
        self.slots, self._threads = count, threads
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("ab")
        self._processes: list[_Process] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for worker in self._processes:
            worker.close()
        for worker in self._processes:
            worker.process.wait()
        self._selector.close()
        self._log.close()

    def start(self, job: Job) -> None:
        free = next((worker for worker in self._processes if worker.job is None), None)
        if free is None:
            free = _Process(self._threads, self._log)
            self._processes.append(free)
            self._selector.register(free.output, selectors.EVENT_READ, free)
        with contextlib.suppress(BrokenPipeError):  # it died between two runs: `wait` reports that
            free.send(job, self._threads)

    def wait(self, seconds: float) -> list[tuple[Job, str, str]]:
        found = []
        for key, _ in self._selector.select(seconds):
            worker: _Process = key.data
            line = worker.output.readline()
            job, worker.job = worker.job, None
            if not line:
                self._bury(worker)
            if job is not None:
                found.append((job, *_read(line)))
        return found

    def stop(self) -> list[tuple[Job, str, str]]:
        for worker in self._processes:
            worker.close()
        found = []
        for worker in self._processes:
            if worker.job is not None:
                line = worker.output.readline()
                found.append((worker.job, *(_read(line) if line else (STOPPED, ""))))
                worker.job = None
        return found

    def _bury(self, worker: _Process) -> None:
        self._selector.unregister(worker.output)
        self._processes.remove(worker)
        worker.process.wait()


def _read(line: bytes) -> tuple[str, str]:
    """Return the outcome and the message of a worker's answer; no answer means that it was killed."""
    if not line:
        return Workers.LOST, "its process was killed"
    answer: dict[str, Any] = json.loads(line)
    return answer["outcome"], answer["message"]
