"""Small runs for the fault tests, the ways to damage a file, and what may come of it."""

import random
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from st3.cli.app import app
from st3.experiments.run import train
from st3.experiments.spec import Spec, compose
from st3.training.listener import Listener
from st3.training.paths import FIGURES, LOCK, REPORT, SESSIONS
from st3.training.stop import Stopped

__all__ = ["DAMAGES", "StopAt", "command", "copy_run", "files_of", "run_until", "small_spec"]

BATCHES = 19  # of an epoch: 1,197 digits in batches of 64
NEVER_READ = (FIGURES, LOCK, REPORT, SESSIONS)


def small_spec(**more: Any) -> Spec:
    machine = {"device": "cpu", "threads": 1}
    return compose(**{"epochs": 2, "protocol": "single", "machine": machine, **more})


class StopAt(Listener):
    """Sends this process a SIGTERM after that batch of the run, or does something else."""

    def __init__(
        self, batch: int, act: Callable[[], object] = lambda: signal.raise_signal(signal.SIGTERM)
    ) -> None:
        self.left, self.act = batch, act

    def on_batch(self, epoch: int, batch: int, batches: int, rate: float) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


def run_until(batch: int | None, folder: Path, spec: Spec) -> Path:
    """Train into `folder` up to that batch, or to the end, and return the folder."""
    try:
        train(spec, folder, listeners=[] if batch is None else [StopAt(batch)])
        assert batch is None
    except Stopped:
        assert batch is not None
    return folder


def copy_run(run: Path, place: Path) -> Path:
    """Return a copy of the run, at the same path each time."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(run, place)
    return place


def files_of(run: Path) -> list[str]:
    """Return the files that somebody reads back."""
    paths = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())
    return [str(path) for path in paths if not {*path.parts} & {*NEVER_READ}]


def flip(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(8 * len(content))
    changed = bytearray(content)
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def blank(content: bytes, chance: random.Random) -> bytes:
    """Zero up to 512 bytes, as a disk does that has lost a sector."""
    at = chance.randrange(len(content))
    lost = min(512, len(content) - at)
    return content[:at] + bytes(lost) + content[at + lost :]


DAMAGES = {"flip": flip, "cut": cut, "blank": blank}


def command(*words: object) -> tuple[str, str]:
    """Run `st3` and return its output or its error, the other one empty; it may also print warnings, one per line."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # printed, as for users
        answer = CliRunner().invoke(app, [str(word) for word in words], prog_name="st3")
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    said = [line for line in answer.stderr.splitlines() if not line.startswith("warning: ")]
    if answer.exit_code == 0:
        return answer.stdout, ""
    assert answer.exit_code == 1
    assert len(said) == 1, answer.stderr
    assert said[0].startswith("error: ")
    return "", said[0]
