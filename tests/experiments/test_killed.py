"""Killed without warning, in the middle of a write or of an epoch, a run goes on as if nothing had happened."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.experiments.test_run import At, essence, same_weights, spec

from st3.experiments import run as running
from st3.experiments.run import train
from st3.training import checkpoint, records, snapshots

ROOT = Path(__file__).parents[2]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def after_half(write):
    """Write half of the file that `write` writes, then die."""

    def half(*arguments, **options):
        write(*arguments, **options)
        path = next(a if isinstance(a, Path) else Path(a.name) for a in arguments if hasattr(a, "name"))
        os.truncate(path, path.stat().st_size // 2)
        die()

    return half


def nth(number, replace, original):
    """Return a function that is `original`, and `replace(original)` at its call of that number."""
    calls = []

    def function(*arguments, **options):
        calls.append(0)
        return (replace(original) if len(calls) == number else original)(*arguments, **options)

    return function


def in_mid_epoch(folder):
    train(spec(), folder, listeners=[At(30, die)])


def writing_a_checkpoint(folder):
    checkpoint.torch.save = nth(2, after_half, checkpoint.torch.save)
    train(spec(), folder)


def between_record_and_checkpoint(folder):
    snapshots.Snapshots.save = nth(2, lambda save: lambda *_: die(), snapshots.Snapshots.save)
    train(spec(), folder)


def in_the_middle_of_a_line(folder):
    def cut(append):
        def half(self, name, figures):
            with (self.folder / f"{name}.jsonl").open("a") as file:
                file.write('{"step": 23, "ep')
            die()

        return half

    records.Records._append = nth(24, cut, records.Records._append)
    train(spec(), folder)


def writing_the_final_model(folder):
    running.write_weights = nth(1, after_half, running.write_weights)
    train(spec(), folder)


DEATHS = [
    in_mid_epoch,
    writing_a_checkpoint,
    between_record_and_checkpoint,
    in_the_middle_of_a_line,
    writing_the_final_model,
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(spec(), folder)
    return folder


# Two of them by default: in the middle of an epoch, and of writing a checkpoint. A dying process takes its time.
@pytest.mark.parametrize(
    "death",
    [
        death
        if death in (in_mid_epoch, writing_a_checkpoint)
        else pytest.param(death, marks=pytest.mark.slow)
        for death in DEATHS
    ],
    ids=lambda death: death.__name__,
)
def test_it_goes_on_bit_for_bit(whole, tmp_path, death):
    code = f"import sys; from tests.experiments.test_killed import *; {death.__name__}(sys.argv[1])"
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "run")]
    dead = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert not (tmp_path / "run" / "summary.json").exists()
    train(spec(), tmp_path / "run", resume=True)
    assert same_weights(tmp_path / "run", whole)
    assert essence(tmp_path / "run") == essence(whole)
