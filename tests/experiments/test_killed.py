"""A run that is killed without warning, within a write or an epoch, resumes as if nothing had happened."""

import os
import signal
from pathlib import Path

import pytest
from tests.experiments.test_run import At, results, same_weights, spec
from tests.processes import run_python

from st3.experiments import conclusion
from st3.experiments.run import train
from st3.training import checkpoint, records, snapshots


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def after_half(write):
    """Return a function that writes half of the file that `write` writes, then dies."""

    def half(*arguments, **options):
        write(*arguments, **options)
        path = next(a if isinstance(a, Path) else Path(a.name) for a in arguments if hasattr(a, "name"))
        os.truncate(path, path.stat().st_size // 2)
        die()

    return half


def replace_nth_call(number, replace, original):
    """Return a function that calls `original`, but `replace(original)` the `number`-th time."""
    calls = []

    def function(*arguments, **options):
        calls.append(0)
        return (replace(original) if len(calls) == number else original)(*arguments, **options)

    return function


def die_within_an_epoch(folder):
    train(spec(), folder, listeners=[At(30, die)])


def die_writing_a_checkpoint(folder):
    checkpoint.torch.save = replace_nth_call(2, after_half, checkpoint.torch.save)
    train(spec(), folder)


def die_between_record_and_checkpoint(folder):
    snapshots.Snapshots.save = replace_nth_call(2, lambda save: lambda *_: die(), snapshots.Snapshots.save)
    train(spec(), folder)


def die_within_a_line(folder):
    def cut(append):
        def half(self, name, metrics):
            with (self.folder / name).open("a") as file:
                file.write('{"step": 23, "ep')
            die()

        return half

    records.Records._append = replace_nth_call(24, cut, records.Records._append)
    train(spec(), folder)


def die_writing_the_final_model(folder):
    conclusion.write_weights = replace_nth_call(1, after_half, conclusion.write_weights)
    train(spec(), folder)


DEATHS = [
    die_within_an_epoch,
    die_writing_a_checkpoint,
    die_between_record_and_checkpoint,
    die_within_a_line,
    die_writing_the_final_model,
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(spec(), folder)
    return folder


# Only two of them by default, within an epoch and a checkpoint: a run to kill and resume takes long.
@pytest.mark.parametrize(
    "death",
    [
        death
        if death in (die_within_an_epoch, die_writing_a_checkpoint)
        else pytest.param(death, marks=pytest.mark.slow)
        for death in DEATHS
    ],
    ids=lambda death: death.__name__,
)
def test_it_resumes_bit_for_bit(whole, tmp_path, death):
    code = f"import sys; from tests.experiments.test_killed import *; {death.__name__}(sys.argv[1])"
    dead = run_python(code, tmp_path / "run")
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert not (tmp_path / "run" / "summary.json").exists()
    train(spec(), tmp_path / "run", resume=True)
    assert same_weights(tmp_path / "run", whole)
    assert results(tmp_path / "run") == results(whole)
