"""The programs beside the library start and do what they say."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = [p for p in sorted((ROOT / "benchmarks").glob("*.py")) if "def main(" in p.read_text()]


# All in one interpreter, so that torch is imported once.
EXPLAIN = """
import contextlib, io, runpy, sys
for program in sys.argv[1:]:
    sys.argv = [program, "--help"]
    sys.path[0] = program.rpartition("/")[0]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            runpy.run_path(program, run_name="__main__")
            raise AssertionError(f"{program} does not end after --help")
        except SystemExit as leaving:
            assert not leaving.code, f"{program} ends with {leaving.code}"
    assert "--rounds" in shown.getvalue(), program
"""


def test_every_benchmark_explains_itself():
    assert len(PROGRAMS) >= 10
    subprocess.run([sys.executable, "-c", EXPLAIN, *map(str, PROGRAMS)], check=True)


def test_masks_have_the_published_zeros_and_multiply_adds():
    spec = importlib.util.spec_from_file_location("masks", ROOT / "benchmarks" / "published_masks.py")
    masks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(masks)
    weights, macs = [100, 400, 1000], [90_000, 40_000, 1000]
    for wanted in (20_000, 60_000):
        shares = masks.densities(weights, macs, 0.3, wanted)
        assert sum(share * size for share, size in zip(shares, weights, strict=True)) == pytest.approx(450)
        assert sum(share * work for share, work in zip(shares, macs, strict=True)) == pytest.approx(wanted)
        assert max(shares) <= 1
    with pytest.raises(ValueError, match="no densities leave"):
        masks.densities(weights, macs, 0.3, 131_000)


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
