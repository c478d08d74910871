"""A worker: trains one run after the other in a process of its own, so that torch is imported once.

It says when it is ready, then reads one JSON line per run from its standard input and answers each with one line on its
standard output. When its input ends, because whoever started it is done or dead, the run under way saves itself and the
worker ends.
"""

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from ...data import Splits
from ...data.errors import DataError
from ...training.metrics import DivergedError
from ...training.stop import Stopped
from ..build import build_splits
from ..folder import FolderInUseError
from ..run import train
from ..spec import DataSpec, Spec, check_spec

__all__ = ["DONE", "FAILED", "IN_USE", "READY", "STOPPED", "train_one"]

READY = "ready"
DONE, FAILED, IN_USE, STOPPED = "done", "failed", "in use", "stopped"  # what can come of a run
GRACE = 600.0  # seconds to save in, after which a worker without a master ends anyway


def train_one(values: dict[str, Any], folder: str) -> tuple[str, str]:
    """Train the run with this spec into `folder`, or continue it; return what came of it, and a message."""
    try:
        spec: Spec = check_spec(values)
        train(spec, folder, resume=True, splits=_read_splits(spec.data.model_dump_json()), keep=1)
    except FolderInUseError as error:
        return IN_USE, str(error)
    except Stopped as stop:
        return STOPPED, str(stop)
    except KeyboardInterrupt:
        return STOPPED, "stopped at once; the work since the last checkpoint is lost"
    except (ValueError, OSError, DataError, DivergedError) as error:
        return FAILED, str(error)
    except (Exception, SystemExit) as error:
        print(f"{folder} failed:", file=sys.stderr)
        traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        return FAILED, f"{type(error).__name__}: {error} ({where})"
    return DONE, ""


@lru_cache(maxsize=1)  # the next run usually has the same data
def _read_splits(data: str) -> Splits:
    return build_splits(DataSpec.model_validate_json(data))


def main() -> None:
    """Serve runs until the input ends."""
    source, answers = _take_pipes()
    tasks: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(source, tasks), daemon=True).start()
    gc.freeze()  # what was imported stays: looking through it after every run would take long
    with contextlib.suppress(BrokenPipeError):  # nobody is there any more to hear the answer
        _answer(answers, READY, "")
        while line := tasks.get():
            task, began = json.loads(line), time.perf_counter()
            outcome, message = train_one(task["spec"], task["folder"])
            print(f"{task['folder']}: {outcome} after {time.perf_counter() - began:.3f} s", file=sys.stderr)
            _answer(answers, outcome, message)
            gc.collect()  # the last network goes before the next one comes


def _take_pipes() -> tuple[IO[str], IO[str]]:
    """Return input and output, and leave others in their place: what libraries read and print is no task or answer."""
    source, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return source, answers


def _answer(answers: IO[str], outcome: str, message: str) -> None:
    print(json.dumps({"outcome": outcome, "message": message}), file=answers, flush=True)


def _listen(source: IO[str], tasks: "SimpleQueue[str]") -> None:
    """Hand on every line; when the input ends, ask the run under way to stop."""
    for line in source:
        tasks.put(line)
    tasks.put("")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


if __name__ == "__main__":
    main()
