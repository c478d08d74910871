"""Run a test's body on several processes that talk over gloo, as `torchrun` would start them.

    @on_ranks(2, 4)
    def test_thresholds_agree() -> None:
        ...  # runs on every rank, once with 2 processes and once with 4

Every test gets processes of its own, forked from one that has imported torch, so that starting them takes a tenth of
a second. When a rank fails or nothing is heard for a while, the test fails with every rank's traceback. No process
outlives its test or the process that started it, however that ends.
"""

import contextlib
import datetime
import functools
import importlib
import inspect
import multiprocessing as mp
import os
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

__all__ = ["on_ranks"]

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


def on_ranks(*counts: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the decorated test on so many processes, once for each of `counts`.

    Parameters and fixtures are sent to every rank, which are seeded alike.
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
        every = pytest.mark.parametrize("ranks", counts, ids=[f"{count}-ranks" for count in counts])
        return pytest.mark.distributed(every(test))

    return decorate


def _run(count: int, module: str, test: str, arguments: dict[str, Any]) -> None:
    """Run a test's body on every rank; raise with the tracebacks of those that failed."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    pipes: list[Connection] = []
    processes = []
    with tempfile.TemporaryDirectory(prefix="st3-ranks-") as folder:
        try:
            for rank in range(count):
                mine, theirs = context.Pipe(duplex=False)
                job = (rank, count, f"file://{folder}/meeting-point", theirs, module, test, arguments)
                processes.append(context.Process(target=_be_a_rank, args=job, daemon=True))
                processes[-1].start()
                pipes.append(mine)
                theirs.close()
            answers = _collect(pipes)
        finally:
            for process in processes:
                process.kill()
                process.join()
    # In the order in which they came: the first to fail is the cause, the others may only have missed it.
    failures = [f"rank {rank}:\n{text}" for rank, text in answers.items() if text]
    silent = [str(rank) for rank in range(count) if rank not in answers]
    if silent:
        failures.append(f"nothing was heard from rank {', '.join(silent)}")
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


def _collect(pipes: list[Connection]) -> dict[int, str | None]:
    """Return what each rank says: None or a traceback."""
    answers: dict[int, str | None] = {}
    deadline = time.monotonic() + TIMEOUT
    while len(answers) < len(pipes):
        waiting = [pipe for rank, pipe in enumerate(pipes) if rank not in answers]
        ready = wait(waiting, timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for pipe in ready:
            rank = pipes.index(pipe)
            try:
                answers[rank] = pipe.recv()
            except EOFError:
                answers[rank] = "the process died"
            if answers[rank]:
                deadline = min(deadline, time.monotonic() + GRACE)
    for pipe in pipes:
        pipe.close()
    return answers


def _be_a_rank(
    rank: int,
    count: int,
    meeting_point: str,
    pipe: Connection,
    module: str,
    test: str,
    arguments: dict[str, Any],
) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank))
    try:
        import torch
        import torch.distributed as dist

        import st3

        torch.set_num_threads(1)
        torch.manual_seed(0)
        patience = datetime.timedelta(seconds=TIMEOUT)
        place = {"rank": rank, "world_size": count}
        dist.init_process_group("gloo", init_method=meeting_point, timeout=patience, **place)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Networks as small as in tests lose filters.
            warnings.simplefilter("ignore", st3.errors.LayerCollapseWarning)
            getattr(importlib.import_module(module), test).body(**arguments)
        dist.barrier()
        answer = None
    except BaseException:
        answer = traceback.format_exc()
    with contextlib.suppress(BrokenPipeError):  # too late: the test has failed already
        pipe.send(answer)


def _end_with_parent() -> None:
    parent = mp.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
