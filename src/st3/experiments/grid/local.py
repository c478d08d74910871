"""Workers on this machine: one process per run, the processor's threads divided among them."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO

from .schedule import TRIES, Job, Workers, WorkersError
from .worker import READY, STOPPED

__all__ = ["LocalWorkers"]

PATIENCE = 5.0  # seconds for a process that has closed its output to end


class _Process:
    """One worker and the run it is training."""

    def __init__(self, threads: int, log: IO[bytes]) -> None:
        self.job: Job | None = None
        self.is_ready = False
        path = os.pathsep.join(
            place or os.getcwd() for place in sys.path
        )  # it finds the modules that we find
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "st3.experiments.grid.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,  # a line that waited in a buffer of ours would not wake the selector
            env=os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C reaches this process only, which tells the workers
        )

    @property
    def output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def send(self, job: Job, threads: int) -> None:
        self.job = job
        task = {"spec": job.spec(threads).model_dump(mode="json"), "folder": str(job.folder)}
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has just died: its output says so
            self._process.stdin.write(f"{json.dumps(task)}\n".encode())
            self._process.stdin.flush()

    def read(self) -> tuple[str, str] | None:
        """Return the outcome and the message of the next answer; None if the process has died."""
        line = self.output.readline()
        if not line.endswith(b"\n"):
            return None
        answer: dict[str, str] = json.loads(line)
        return answer["outcome"], answer["message"]

    def close(self) -> None:
        """End the input: the worker lets its run save, and ends."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        self._process.kill()

    def bury(self) -> str:
        """Wait for the end of a process that has closed its output; return how it ended."""
        self.close()
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self.output.close()
        return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


class LocalWorkers(Workers):
    """Processes of this machine, kept warm from run to run."""

    def __init__(self, count: int, threads: int, log: Path) -> None:
        self._count, self._threads = count, threads
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("ab")
        self._processes: list[_Process] = []
        self._stillborn = 0  # processes in a row that died before they were ready
        self._selector = selectors.DefaultSelector()
        for _ in range(count):  # they import torch while the driver still looks at the runs
            self._add()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if kind is KeyboardInterrupt:
            for worker in self._processes:
                worker.kill()
        self.stop()
        for worker in self._processes:
            worker.bury()
        self._selector.close()
        self._log.close()

    @property
    def slots(self) -> int:
        return self._count

    def start(self, job: Job) -> None:
        free = next((worker for worker in self._processes if worker.job is None), None) or self._add()
        free.send(job, self._threads)

    def wait(self, seconds: float) -> list[tuple[Job, str, str]]:
        found = []
        for key, _ in self._selector.select(seconds):
            worker: _Process = key.data
            answer = worker.read()
            if answer is not None and answer[0] == READY:
                worker.is_ready, self._stillborn = True, 0
                continue
            job, worker.job = worker.job, None
            if answer is None:
                answer = self.LOST, f"its process {self._remove(worker)}"
            if job is not None:
                found.append((job, *answer))
        return found

    def stop(self) -> list[tuple[Job, str, str]]:
        for worker in self._processes:
            worker.close()
        found = []
        for worker in self._processes:
            while worker.job is not None:
                answer = worker.read() or (STOPPED, "")  # one that dies now had nothing to save yet
                if answer[0] != READY:
                    found.append((worker.job, *answer))
                    worker.job = None
        return found

    def _add(self) -> _Process:
        worker = _Process(self._threads, self._log)
        self._processes.append(worker)
        self._selector.register(worker.output, selectors.EVENT_READ, worker)
        return worker

    def _remove(self, worker: _Process) -> str:
        """Forget a process that has died; return how it ended."""
        self._selector.unregister(worker.output)
        self._processes.remove(worker)
        how = worker.bury()
        if not worker.is_ready:
            self._stillborn += 1
            if self._stillborn == TRIES:
                raise WorkersError(f"no worker can start: the last one {how}; {self._last_words()}")
        return how

    def _last_words(self) -> str:
        lines = Path(self._log.name).read_text(encoding="utf-8", errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return f"{said} ({self._log.name})"
