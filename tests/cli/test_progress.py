"""What the terminal shows during a run, with made-up events."""

import io
import time

import pytest
from rich.console import Console

import st3.cli.progress
from st3.cli.progress import LiveProgress, PlainProgress, progress_for
from st3.experiments.spec import compose

BATCHES = 4


def metrics(epoch, sparsity=None, is_best=False):
    return {
        "epoch": epoch,
        "step": epoch * BATCHES,
        "seconds": 1.0,
        "rate": 0.1,
        "train": {"loss": 1.25, "accuracy": 0.5},
        "validation": {"loss": 1.0, "accuracy": 0.625},
        "sparsity": sparsity,
        "sparsity_asked": sparsity,
        "threshold": None,
        "is_best": is_best,
    }


def epoch(progress, number, **known):
    for batch in range(1, BATCHES + 1):
        progress.on_batch(number, batch, BATCHES, 0.1)
    progress.on_epoch(metrics(number, **known), {})


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock by one that advances a second each time it is read."""
    now = iter(range(10_000))
    monkeypatch.setattr(st3.cli.progress.time, "monotonic", lambda: float(next(now)))


def test_a_line_per_epoch(capsys):
    progress = PlainProgress(compose(epochs=2, protocol="single"))
    epoch(progress, 1, sparsity=0.456)
    epoch(progress, 2, sparsity=0.9, is_best=True)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(
        "epoch 1/2  rate 0.1       loss 1.2500  train  50.0 %  validation  62.5 %  sparsity  45.6 % -> 90.0 %  "
    )
    assert first.endswith("s, 0:00 left")
    assert "  sparsity  90.0 % -> 90.0 %  best " in second
    assert "left" not in second


def test_a_dense_run_shows_no_sparsity(capsys):
    progress = PlainProgress(compose(epochs=1, sparse={"method": "dense"}))
    epoch(progress, 1)
    assert "sparsity" not in capsys.readouterr().err


def test_the_dense_twin_and_then_the_sparse_run_are_announced(capsys):
    progress = PlainProgress(compose(epochs=2, protocol="twin"))
    progress.on_part("dense twin", "dense", 0, 2, None)
    progress.on_begin(True, 0, 0)
    epoch(progress, 1)
    epoch(progress, 2)
    progress.on_part("sparse", "", 1, 2, 0.9)
    progress.on_begin(False, 0, 0)
    epoch(progress, 1, sparsity=0.5)
    lines = [line.partition("  ")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["dense twin (1 of 2)", "epoch 1/2", "epoch 2/2", "sparse (2 of 2)", "epoch 1/2"]


def test_the_time_left_includes_the_sparse_run_after_its_twin(clock):
    progress = PlainProgress(compose(epochs=10, protocol="twin"))
    progress.on_part("dense twin", "dense", 0, 2, None)
    progress.on_begin(True, 4 * BATCHES, 4)
    progress.on_batch(5, 1, BATCHES, 0.1)
    began, total = progress._run_began, 2 * 10 * BATCHES
    left = progress.seconds_left()
    pace = time.monotonic() - 1 - began  # one batch was done since
    assert left == pace * (total - 4 * BATCHES - 1)


def test_a_resumed_run_prints_where_it_continues(capsys):
    progress = PlainProgress(compose(epochs=5, protocol="single"))
    progress.on_begin(False, 1234, 3)
    assert capsys.readouterr().err == "continuing after step 1,234, 3 of 5 epochs are done\n"
    progress.on_begin(False, 0, 0)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_the_lines_are_plain(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert type(progress_for(compose())) is PlainProgress


def test_on_a_terminal_the_last_line_moves_and_finished_epochs_stay():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160, color_system=None)
    with LiveProgress(compose(epochs=2, protocol="single"), console) as progress:
        epoch(progress, 1, sparsity=0.4)
        progress.on_step({"loss": 0.987, "sparsity_asked": 0.456})
        progress.on_batch(2, 1, BATCHES, 0.05)
        progress._bar.refresh()
    shown = screen.getvalue()
    assert "epoch 1/2  rate 0.1       loss 1.2500" in shown
    live = shown[shown.index("epoch 2/2") :]
    assert "1/4 rate 0.05, loss 0.987, accuracy 62.5 %, sparsity 45.6 % -> 90.0 %, 0:00 left" in live
