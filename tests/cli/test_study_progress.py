"""The progress of a study: a live table on a terminal, plain lines elsewhere."""

import io
import json
import time

import pytest
from rich.console import Console
from tests.experiments.grid.networks import make_job

from st3.cli.study_progress import LiveStudy, PlainStudy


@pytest.fixture
def jobs(tmp_path):
    """Return a run after its first epoch of four, one that has failed, and one that waits."""
    training, failed, queued = (make_job("digits_cnn", tmp_path, seed=seed, epochs=4) for seed in range(3))
    training.folder.mkdir()
    (training.folder / "epochs.jsonl").write_text(json.dumps({"validation": {"accuracy": 0.875}}) + "\n")
    training.state, training.began = "training", time.monotonic()
    failed.state, failed.message = "failed", "no more of this"
    return [training, failed, queued]


def test_the_live_table_shows_runs_under_way_and_what_has_failed(jobs):
    text = io.StringIO()
    live = LiveStudy(jobs, Console(file=text, force_terminal=True, width=100, color_system=None))
    with live:
        live.update()
    shown = text.getvalue()
    assert "1 training, 1 queued, 1 failed" in shown
    (training,) = [line for line in shown.splitlines() if "seed 0" in line]
    assert "1/4" in training
    assert "87.5" in training
    assert "no more of this" in shown
    assert "seed 2" not in shown


def test_plain_lines_are_said_once_and_only_of_what_has_changed(jobs, capsys):
    plain = PlainStudy(jobs)
    plain.update()
    plain.update()
    first = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0] for line in first] == [
        "digits_cnn 90 % digits_cnn seed 0: training",
        "digits_cnn 90 % digits_cnn seed 1: failed no more of this",
    ]
    jobs[0].state = "done"
    plain.update()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("digits_cnn 90 % digits_cnn seed 0: done; 1 done, 1 queued, 1 failed, ")
    assert line.endswith(" left")
