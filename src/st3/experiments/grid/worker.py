"""A worker: trains one run after the other in a process of its own, so that torch is imported once.

It reads one JSON line per run from its standard input and answers each with one line on its standard output. When its
input ends, because whoever started it is done or dead, the run under way saves itself and the worker ends.
"""

import json
import os
import signal
import sys
import threading
import traceback
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ...data import Splits
from ...training.sections import SettingsError
from ...training.stop import Stopped
from ..build import build_splits
from ..folder import FolderInUseError
from ..run import train
from ..spec import DataSpec, Spec, check_spec

__all__ = ["DONE", "FAILED", "IN_USE", "STOPPED", "train_one"]

DONE, FAILED, IN_USE, STOPPED = "done", "failed", "in use", "stopped"


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
    except (SettingsError, ValueError, LookupError, OSError) as error:
        return FAILED, str(error)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        return FAILED, f"{type(error).__name__}: {error} ({where})"
    return DONE, ""


@lru_cache(maxsize=1)  # the next run usually has the same data
def _read_splits(data: str) -> Splits:
    return build_splits(DataSpec.model_validate_json(data))


def main() -> None:
    """Serve runs until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    tasks: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    while line := tasks.get():
        task = json.loads(line)
        outcome, message = train_one(task["spec"], task["folder"])
        print(json.dumps({"outcome": outcome, "message": message}), file=answers, flush=True)


def _listen(tasks: "SimpleQueue[str]") -> None:
    """Hand on every line; when the input ends, ask the run under way to stop."""
    for line in sys.stdin:
        tasks.put(line)
    tasks.put("")
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
