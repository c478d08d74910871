"""The programs beside the library start and do what they say."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = [p for p in sorted((ROOT / "benchmarks").glob("*.py")) if "def main(" in p.read_text()]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_benchmark_explains_itself(program):
    shown = subprocess.run(
        [sys.executable, str(program), "--help"], capture_output=True, text=True, check=True
    )
    assert "--rounds" in shown.stdout


@pytest.fixture
def own_loop():
    spec = importlib.util.spec_from_file_location("own_loop", ROOT / "examples" / "own_loop.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_own_loop_example_trains_dense_and_sparse_and_reports_both(own_loop, capsys, monkeypatch):
    monkeypatch.setattr(own_loop, "EPOCHS", 2)
    pictures = own_loop.pictures
    monkeypatch.setattr(own_loop, "pictures", lambda count, seed: pictures(count // 10, seed))
    own_loop.main()
    shown = capsys.readouterr().out
    assert "90.00 % of 23,808 weights" in shown
    assert "test accuracy on 400 pictures: dense" in shown


@pytest.mark.slow
def test_a_network_with_90_percent_zeros_is_within_a_point_of_the_dense_one(own_loop):
    """The example's task and budget (12 epochs), mean of three seeds."""
    data, test = own_loop.pictures(6000, seed=1), own_loop.pictures(4000, seed=2)
    accuracies = {
        sparsity: sum(own_loop.accuracy(own_loop.train(sparsity, data, seed)[0], *test) for seed in range(3))
        / 3
        for sparsity in (0.0, 0.9)
    }
    assert accuracies[0.9] >= accuracies[0.0] - 0.01, accuracies
