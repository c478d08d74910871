"""The programs beside the library start and do what they say."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.processes import run_python

ROOT = Path(__file__).parents[1]
PROGRAMS = [p for p in sorted((ROOT / "benchmarks").glob("*.py")) if "def main(" in p.read_text()]


# All in one process.
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
    done = run_python(EXPLAIN, *PROGRAMS)
    assert done.returncode == 0, done.stderr


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


def run_example(name, folder):
    """Run a program of examples/ as a user would, and return what it prints."""
    program = ROOT / "examples" / f"{name}.py"
    assert len(program.read_text(encoding="utf-8").splitlines()) <= 60
    done = subprocess.run([sys.executable, program], cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_fine_tuning_example_keeps_the_zeros_and_learns_the_new_task(tmp_path):
    first, kept, filled = run_example("fine_tune", tmp_path).splitlines()
    found = [re.search(r"accuracy ([\d.]+)%, zeros ([\d.]+)%", line) for line in (first, kept, filled)]
    accuracies, zeros = ([float(match[group]) for match in found] for group in (1, 2))
    assert min(accuracies) > 90
    assert zeros[0] == zeros[1] == 90.0
    assert zeros[2] < 50


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*semi_structured")
def test_the_two_four_example_writes_what_torchs_compressed_layout_takes(tmp_path):
    from torch.sparse import _semi_structured_conversions as layout

    shown = run_example("two_four", tmp_path)
    assert all(float(accuracy) > 95 for accuracy in re.findall(r"test accuracy ([\d.]+)%", shown))
    for method in ("sr_ste", "s_ste"):
        state = torch.load(tmp_path / f"two_four_{method}.pt", weights_only=True)
        weight = state["5.weight"].bfloat16()  # of a linear layer
        values, places = layout.sparse_semi_structured_from_dense_cutlass(weight)
        assert values.numel() == weight.numel() // 2
        assert torch.equal(layout.sparse_semi_structured_to_dense_cutlass(values, places), weight)
        rows = state["2.weight"].permute(0, 2, 3, 1).flatten(1)  # a convolution as a matrix, channels last
        assert torch.equal((rows.unflatten(1, (-1, 4)) != 0).sum(-1).amax(), torch.tensor(2))
        assert (state["0.weight"] != 0).all()  # one input channel: dense


@pytest.mark.slow
def test_the_hugging_face_example_is_as_accurate_with_90_percent_zeros(tmp_path):
    shown = run_example("huggingface_text", tmp_path)
    assert "90.00 % of 69,632 weights in 13 layers" in shown
    dense, sparse = map(float, re.search(r"dense ([\d.]+), 90 % zeros ([\d.]+)", shown).groups())
    assert dense > 0.7
    assert sparse > dense - 0.03


@pytest.mark.slow
def test_the_gpt2_example_reloads_its_zeros_and_writes_nearly_as_well(tmp_path):
    shown = run_example("huggingface_gpt2", tmp_path)
    assert "of 98,304 weights in 8 layers" in shown
    assert "zeros after reloading: 78,643" in shown
    dense, sparse = map(float, re.search(r"dense ([\d.]+), 80 % zeros ([\d.]+)", shown).groups())
    assert dense < 4
    assert sparse < dense + 0.5


@pytest.mark.slow
@pytest.mark.distributed
def test_the_accelerate_example_trains_in_two_processes(tmp_path):
    shown = run_example("accelerate_two", tmp_path)
    assert shown.count("90.00 % of 23,808 weights") == 1  # only one of them prints
    assert float(re.search(r"test accuracy ([\d.]+)%, 2 processes", shown)[1]) > 95


@pytest.mark.slow
def test_the_lightning_example_tests_a_best_epoch_with_90_percent_zeros(tmp_path):
    shown = run_example("lightning_digits", tmp_path)
    assert float(re.search(r"accuracy\W+([\d.]+)", shown)[1]) > 0.95
    assert shown.count("Sparsity: 90.00 % of 23,808 weights in 4 layers") == 2  # the last epoch, and the best
