"""Expected errors without a traceback, others with it; warnings as one line."""

import errno
import re
import warnings
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import st3.cli.faults
from st3.cli.app import _Group
from st3.cli.faults import Debug
from st3.data import DataError
from st3.errors import LayerCollapseWarning, TargetMissedError
from st3.experiments.results import ResultsError
from st3.experiments.run import ProcessLostError
from st3.files.weights import WeightsError
from st3.models import MODELS
from st3.training.checkpoint import CheckpointFolder
from st3.training.metrics import DivergedError
from st3.training.sections import SettingsError


@pytest.fixture
def call(monkeypatch):
    """Return a function that runs another one as a command of an app like ours."""
    monkeypatch.delenv("ST3_DEBUG", raising=False)

    def call_as_command(function, *words):
        app = typer.Typer(cls=_Group, pretty_exceptions_enable=False)
        app.callback()(lambda: None)

        @app.command("do")
        def _do(debug: Annotated[bool, Debug] = False) -> None:
            function()

        return CliRunner().invoke(app, ["do", *words])

    return call_as_command


def raising(error):
    def function():
        raise error

    return function


@pytest.mark.parametrize(
    "kind",
    [TargetMissedError, DataError, ResultsError, ProcessLostError, WeightsError, DivergedError],
)
def test_an_expected_error_is_printed_in_one_line(call, kind):
    answer = call(raising(kind("this is wrong")))
    assert (answer.exit_code, answer.stderr, answer.stdout) == (1, "error: this is wrong\n", "")


def test_every_fault_in_settings_has_its_line(call):
    answer = call(raising(SettingsError("the spec has faults", ["a is wrong", "b: c; d"])))
    assert answer.stderr == "error: the spec has faults:\n  a is wrong\n  b: c; d\n"


def test_a_single_fault_stays_on_the_first_line(call):
    assert call(raising(SettingsError("--set", ["x is not"]))).stderr == "error: --set: x is not\n"


def test_errors_of_the_core_are_explained(call):
    answer = call(lambda: MODELS["resnet2"])
    assert answer.stderr.startswith("error: unknown model 'resnet2'; did you mean 'resnet20'?")
    answer = call(lambda: CheckpointFolder(Path("a"), keep=0))
    assert answer.stderr == "error: at least one checkpoint must be kept, got keep=0\n"


def test_a_full_disk_is_explained(call):
    answer = call(raising(OSError(errno.ENOSPC, "No space left on device", "runs/a/model.safetensors")))
    assert answer.stderr == "error: cannot write runs/a/model.safetensors: No space left on device\n"


@pytest.mark.parametrize("name", ["folder.png", "file/x.png"])
def test_a_name_that_is_taken_is_explained(st3, finished, tmp_path, name):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    answer = st3("plot", finished, "--out", name)
    assert answer.exit_code == 1
    assert re.fullmatch(r"error: cannot open (folder.png|file): .*\n", answer.stderr)


@pytest.mark.parametrize(
    "error", [ValueError("raised elsewhere"), KeyError("a mistake"), ZeroDivisionError()], ids=repr
)
def test_an_unexpected_error_keeps_its_traceback(call, error):
    answer = call(raising(error))
    assert answer.exception is error
    assert answer.stderr == ""


def test_debug_shows_the_traceback_of_an_expected_error(call, monkeypatch):
    error = WeightsError("damaged")
    assert call(raising(error), "--debug").exception is error
    monkeypatch.setenv("ST3_DEBUG", "1")
    assert call(raising(error)).exception is error


def test_another_process_prints_only_errors_that_the_first_may_not_have(call, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(st3.cli.faults, "PAUSE", 0.0)
    assert call(raising(SettingsError("spec", ["is wrong"]))).stderr == ""
    assert call(raising(DataError("no pictures here"))).stderr == "error in process 1: no pictures here\n"


def test_our_warnings_are_printed_in_one_line(call):
    def warn():
        warnings.simplefilter("always")
        warnings.warn("layer 'fc' has no active weight left", LayerCollapseWarning, stacklevel=1)
        warnings.warn("something of another library", UserWarning, stacklevel=1)

    ours, *others = call(warn).stderr.splitlines()
    assert ours == "warning: layer 'fc' has no active weight left"
    assert "UserWarning: something of another library" in others[0]
