"""Ctrl-C and SIGTERM: everything is saved, and the run can be resumed."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.processes import COMMAND, start_python

EPOCHS = 8  # so that the signal comes before the last one even where the test is slow and training is not


def stop_run(folder: Path, number: int) -> subprocess.CompletedProcess[str]:
    """Start a run, send the signal in its third epoch, and return what it printed."""
    words = ("train", "--epochs", EPOCHS, "--no-dense-twin", "--run", folder)
    process = start_python(COMMAND, *words)
    deadline = time.monotonic() + 120
    epochs = folder / "epochs.jsonl"
    while not (epochs.exists() and len(epochs.read_text().splitlines()) >= 2):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.wait(), out, err)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["SIGINT", "SIGTERM"]
)
def test_a_stopped_run_says_how_to_continue_and_does(st3, tmp_path, number):
    folder = tmp_path / "run"
    left = stop_run(folder, number)
    assert left.returncode == 128 + number
    *_, first, last = left.stderr.splitlines()
    assert first.startswith("stopped in epoch ")
    assert first.endswith("; everything is saved")
    assert last == f"continue with: st3 train --run {folder} --resume"
    assert "Traceback" not in left.stderr
    assert left.stdout == ""

    done = st3(*last.partition(": st3 ")[2].split())
    assert done.exit_code == 0, done.stderr
    assert "continuing after step " in done.stderr
    epochs = [json.loads(line)["epoch"] for line in (folder / "epochs.jsonl").read_text().splitlines()]
    assert epochs == list(range(1, EPOCHS + 1))
    assert (folder / "summary.json").exists()


def test_stopped_before_it_began_it_says_that_nothing_was_written(st3, tmp_path, monkeypatch):
    def interrupt(*words, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("st3.experiments.run.build_splits", interrupt)
    answer = st3("train", "--run", "a", "--quiet")
    assert (answer.exit_code, answer.stderr) == (130, "stopped before the run began: nothing was written\n")
    assert not (tmp_path / "a").exists()
