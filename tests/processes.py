"""Run a test's body on several processes that talk over gloo, as `torchrun` would start them; or a program in one.

    done = run_python("from tests.mine import work; work(sys.argv[1])", folder)  # as a new interpreter would, sooner

    @on_ranks(2, 4)
    def test_thresholds_agree() -> None:
        ...  # runs on every rank, once with 2 processes and once with 4

The processes are started once for each number of ranks, and every test is sent to them: what torch learns in one test
(imports, caches, connections) serves the next. When a rank fails or nothing is heard for a while, the test fails with
every rank's traceback, and the next test gets new processes. No process outlives the one that started it, however that
ends. A body must put back what it changes outside itself.
"""

import atexit
import contextlib
import datetime
import functools
import gc
import importlib
import inspect
import multiprocessing as mp
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

__all__ = ["COMMAND", "Program", "on_ranks", "run_python", "start_python"]

TIMEOUT = 60.0  # seconds for one test on all ranks; the machine may be busy
GRACE = 3.0  # seconds that the other ranks get to fail as well, once one has
PRELOAD = [
    "pytest",
    "st3",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint.state_dict",
]

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:  # the processes find the test modules by name
    sys.path.append(ROOT)


COMMAND = "from st3_command import main; main()"  # a program: the `st3` command


class Program:
    """A program in a process of its own, like `subprocess.Popen` with text from both pipes.

    The process is forked from one that has imported torch and st3 already, which takes longer than most programs. For
    tests of how Python starts or ends, of what is imported and of variables that an import reads, start an interpreter.
    """

    def __init__(self, code: str, *words: object, name: str, folder: Path, **environment: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="st3-program-")
        self._prints = [Path(self._folder.name, stream) for stream in ("out", "err")]
        self._printed: list[str] = []
        self._words = [name, *map(str, words)]
        everything = {**os.environ, **environment}
        job = (code, self._words, folder, everything, self._prints)
        self._process = _context().Process(target=_be_a_program, args=job)
        self._process.start()

    @property
    def pid(self) -> int:
        pid: int = self._process.pid
        return pid

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self._words, timeout or 0.0)
        if not self._printed:
            self._printed = [path.read_text(encoding="utf-8") for path in self._prints]
            self._folder.cleanup()
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return what was printed to the standard output and the standard error."""
        self.wait(timeout)
        out, err = self._printed
        return out, err


def start_python(
    code: str, *words: object, name: str = "-c", folder: str | Path = ".", **environment: str
) -> Program:
    """Start a program inside `folder`, with these words in `sys.argv` and variables beside those of this process."""
    return Program(code, *words, name=name, folder=Path(folder).absolute(), **environment)


def run_python(
    code: str, *words: object, name: str = "-c", folder: str | Path = ".", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as `start_python` starts it; return how it ended, and what it printed."""
    program = start_python(code, *words, name=name, folder=folder, **environment)
    out, err = program.communicate()
    return subprocess.CompletedProcess([name, *words], program.wait(), out, err)


def _context() -> Any:
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


def _be_a_program(
    code: str, words: list[str], folder: Path, environment: dict[str, str], prints: list[Path]
) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()  # what was imported before stays
    for number, path in enumerate(prints, start=1):
        with path.open("w") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(code, words[0], "exec"), main.__dict__)


def on_ranks(*counts: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the decorated test on so many processes, once for each of `counts`.

    Without counts, a parameter `ranks` of the test says how many. Parameters and fixtures are sent to every rank, and
    all ranks are seeded alike.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(body)
        def test(ranks: int, **arguments: Any) -> None:
            _run(ranks, body.__module__, body.__name__, arguments)

        del test.__wrapped__
        test.body = body
        own = inspect.signature(body).parameters.values()
        ranks = inspect.Parameter("ranks", inspect.Parameter.KEYWORD_ONLY)
        test.__signature__ = inspect.Signature([*own, ranks])
        if counts:
            every = pytest.mark.parametrize("ranks", counts, ids=[f"{count}-ranks" for count in counts])
            test = every(test)
        return pytest.mark.distributed(test)

    return decorate


class Team:
    """Processes that are one another's ranks, waiting for tests."""

    def __init__(self, count: int) -> None:
        context = _context()
        self._folder = tempfile.TemporaryDirectory(prefix="st3-ranks-")
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(count):
            mine, theirs = context.Pipe()
            job = (rank, count, f"file://{self._folder.name}/meeting-point", theirs)
            self._processes.append(context.Process(target=_be_a_rank, args=job, daemon=True))
            self._processes[-1].start()
            self._pipes.append(mine)
            theirs.close()

    def run(self, module: str, test: str, arguments: dict[str, Any]) -> list[str]:
        """Run a test's body on every rank; return the tracebacks of those that failed."""
        for pipe in self._pipes:
            pipe.send((module, test, arguments))
        answers = self._collect()
        # In the order in which they came: the first to fail is the cause, the others may only have missed it.
        failures = [f"rank {rank}:\n{text}" for rank, text in answers.items() if text]
        silent = [str(rank) for rank in range(len(self._pipes)) if rank not in answers]
        if silent:
            failures.append(f"nothing was heard from rank {', '.join(silent)}")
        return failures

    def _collect(self) -> dict[int, str | None]:
        """Return what each rank says: None or a traceback."""
        answers: dict[int, str | None] = {}
        deadline = time.monotonic() + TIMEOUT
        while len(answers) < len(self._pipes):
            waiting = [pipe for rank, pipe in enumerate(self._pipes) if rank not in answers]
            ready = wait(waiting, timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                rank = self._pipes.index(pipe)
                try:
                    answers[rank] = pipe.recv()
                except (EOFError, ConnectionResetError):
                    answers[rank] = "the process died"
                if answers[rank]:
                    deadline = min(deadline, time.monotonic() + GRACE)
        return answers

    def end(self) -> None:
        """Kill the processes."""
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()
        self._folder.cleanup()


_teams: dict[int, Team] = {}  # by number of ranks


def _run(count: int, module: str, test: str, arguments: dict[str, Any]) -> None:
    """Run a test's body on every rank; fail with the tracebacks of those that did."""
    if count not in _teams:
        _teams[count] = Team(count)
    failures = ["interrupted"]
    try:
        failures = _teams[count].run(module, test, arguments)
    finally:
        if failures:  # ranks may be waiting for one another: nobody can say what state they are in
            _teams.pop(count).end()
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


@atexit.register
def _end_all() -> None:
    while _teams:
        _teams.popitem()[1].end()


def _be_a_rank(rank: int, count: int, meeting_point: str, pipe: Connection) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()  # what was imported before stays
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank))
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    patience = datetime.timedelta(seconds=TIMEOUT)
    dist.init_process_group("gloo", init_method=meeting_point, timeout=patience, rank=rank, world_size=count)
    while True:
        answer = _work(*pipe.recv())
        with contextlib.suppress(BrokenPipeError):  # too late: the test has failed already
            pipe.send(answer)


def _work(module: str, test: str, arguments: dict[str, Any]) -> str | None:
    """Run a test's body on this rank; return None, or the traceback."""
    import torch
    import torch.distributed as dist

    import st3

    try:
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Networks as small as in tests lose filters.
            warnings.simplefilter("ignore", st3.errors.LayerCollapseWarning)
            warnings.simplefilter("ignore", st3.errors.PrecisionWarning)
            getattr(importlib.import_module(module), test).body(**arguments)
        dist.barrier()
    except BaseException:
        return traceback.format_exc()
    return None


def _end_with_parent() -> None:
    parent = mp.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
