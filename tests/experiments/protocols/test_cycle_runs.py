"""Runs in cycles: what one hands over to the next, which pictures they see, and that they resume bit for bit."""

import copy
import itertools
import json
import shutil
import signal

import pytest
import torch
from tests.experiments.test_killed import after_half, die, replace_nth_call
from tests.processes import on_ranks, run_python
from torch import nn

import st3
from st3.core.method import METHODS
from st3.core.selection.select import quota
from st3.data import Splits
from st3.data.in_memory import InMemory
from st3.experiments import one_part
from st3.experiments.folder import RunFolderError
from st3.experiments.inspection import inspect_stored
from st3.experiments.page import write_page
from st3.experiments.plots import plot_runs
from st3.experiments.results import Run
from st3.experiments.run import train
from st3.experiments.spec import compose
from st3.files.weights import read_weights
from st3.training.listener import Listener
from st3.training.sealed import parse
from st3.training.sections import SettingsError
from st3.training.stop import Stopped

BATCHES, EPOCHS = 3, 2
NETWORK = "tests.experiments.protocols.test_cycle_runs:network"
TARGET = 0.5  # cycles of 0, 0.2, 0.36, 0.488 and 0.5


def pictures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, 1, 8, 8), dtype=torch.uint8, generator=generator)
    return InMemory(pixels, pixels.flatten(1).float().mean(1).long() % 2, mean=(0.5,), std=(0.29,), shift=1)


SPLITS = Splits("noise", pictures(48, 0), pictures(20, 1), pictures(20, 2), ("even", "odd"), (1, 8, 8))


def network(classes=2, channels=1):
    """Build a small network with batch norm and dropout: 72 + 576 + 16 = 664 weights."""
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, classes),
    )  # fmt: skip


WEIGHTS = 72 + 576 + 16


def spec(method="gmp", sparsity=TARGET, rate=0.05, **cycles):
    return compose(
        data={"name": "digits"},
        model={"name": NETWORK},
        sparse={"method": method, "sparsity": sparsity},
        recipe="digits",
        epochs=EPOCHS,
        protocol={"name": "lrr", "arguments": cycles},
        changes={"batch_size": 16, "optimizer.lr": rate},
        machine={"device": "cpu", "threads": 1},
    )


def run_cycles(folder, *arguments, resume=False, listeners=(), **options):
    return train(spec(*arguments, **options), folder, resume=resume, splits=SPLITS, listeners=listeners)


def weights(folder, name="model.safetensors"):
    found = read_weights(folder / name)[0]
    return {key: tensor for key, tensor in found.items() if tensor.dim() > 1}, found


def zeros(tensors):
    return sum(int((tensor == 0).sum()) for tensor in tensors.values())


def cycles_of(folder):
    return sorted(folder.glob("cycle-*"))


def results(folder):
    """Return everything that a run in cycles leaves behind, apart from times, paths and versions."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".safetensors":
            is_sparse = path.name.endswith(".sparse.safetensors")
            tensors = st3.load_sparse(path) if is_sparse else read_weights(path)[0]
            found[name] = {key: tensor.tolist() for key, tensor in tensors.items()}
        elif path.suffix == ".jsonl" and path.stem != "sessions":
            lines = path.read_text().splitlines()
            found[name] = [json.loads(line, object_hook=_without_seconds) for line in lines]
        elif path.name == "summary.json":
            found[name] = json.loads(path.read_text(), object_hook=_without_seconds)
    return found


def _without_seconds(record):
    return {key: value for key, value in record.items() if key not in ("seconds", "checksum")}


@pytest.fixture(scope="module")
def lrr(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "lrr"
    run_cycles(folder)
    return folder


@pytest.fixture(scope="module")
def lrr_st3(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "lrr-st3"
    run_cycles(folder, "st3")
    return folder


@pytest.fixture
def starts(monkeypatch):
    """Collect the state of each cycle when its loop begins."""
    found = []

    def note_and_fit(job, *others):
        sparsifier = job.sparsifier
        found.append(
            {
                "weights": copy.deepcopy(job.model.state_dict()),
                "raw": {} if sparsifier is None else
                {layer.name: sparsifier._conductor.family.raw(layer).clone() for layer in sparsifier.layers},
                "momentum": {k for state in job.optimizer.state.values() for k in state},
                "rate": job.rate(0),
                "random": torch.get_rng_state(),
                "pictures": [[p.clone() for p, _ in job.train.epoch(epoch)] for epoch in range(EPOCHS)],
            }
        )  # fmt: skip
        return fit(job, *others)

    fit = one_part.fit
    monkeypatch.setattr(one_part, "fit", note_and_fit)
    return found


# ---------------------------------------------------------------- LRR


@pytest.mark.parametrize("run", ["lrr", "lrr_st3"])
def test_every_cycle_has_exactly_its_zeros(run, request):
    folder = request.getfixturevalue(run)
    asked = [0, *(quota(WEIGHTS, s).zeros for s in (0.2, 0.36, 0.488, 0.5))]
    assert asked == [0, 133, 239, 324, 332]  # floor(663 s) + 1
    assert [zeros(weights(cycle)[0]) for cycle in cycles_of(folder)] == asked
    summary = json.loads((folder / "summary.json").read_text())
    assert [round(cycle["sparsity"] * WEIGHTS) for cycle in summary["cycles"]] == asked


def test_the_smallest_remaining_weights_are_pruned_and_never_return(lrr):
    for before, after in itertools.pairwise(cycles_of(lrr)):
        raw, pruned = (torch.cat([t.flatten() for t in weights(*w)[0].values()]) for w in
                       ((before, "raw.safetensors"), (after, "model.safetensors")))  # fmt: skip
        gone = pruned == 0
        assert not bool((~gone & (raw == 0)).any())  # no zero of the previous cycle has returned
        assert raw[gone].abs().max() <= raw[~gone].abs().min()


@pytest.mark.parametrize("method", ["gmp", "st3"])
def test_a_cycle_takes_weights_and_statistics_from_the_previous_one_and_nothing_else(
    tmp_path, starts, method
):
    run_cycles(tmp_path, method, sparsity=0.36)
    assert len(starts) == 3
    assert len({cycle["rate"] for cycle in starts}) == 1  # the learning rate is rewound
    for number, cycle in enumerate(starts[1:]):
        left = weights(tmp_path / f"cycle-{number:02}", "raw.safetensors")[1]
        assert not cycle["momentum"] - {"st3_mask", "st3_raw"}
        for name, tensor in cycle["weights"].items():
            if name not in cycle["raw"]:
                assert torch.equal(tensor, left[name]), name  # norms, biases, running statistics
            elif method == "gmp":
                assert torch.equal(tensor, left[name] * (tensor != 0)), name
            else:
                assert torch.equal(cycle["raw"][name], left[name]), name
    assert not torch.equal(starts[1]["weights"]["1.running_mean"], starts[0]["weights"]["1.running_mean"])


def test_with_st3_inside_the_threshold_changes_with_every_step(lrr_st3):
    steps = [json.loads(line) for line in (lrr_st3 / "cycle-01" / "steps.jsonl").read_text().splitlines()]
    assert [step["sparsity_asked"] for step in steps] == [0.2] * EPOCHS * BATCHES
    assert len({step["threshold"] for step in steps}) == EPOCHS * BATCHES


def test_with_st3_inside_zeroed_weights_may_return(tmp_path):
    run_cycles(tmp_path, "st3", sparsity=0.36, rate=0.5)
    first, second = (weights(tmp_path / name)[0] for name in ("cycle-01", "cycle-02"))
    assert any(bool(((first[name] == 0) & (second[name] != 0)).any()) for name in first)


def test_the_next_cycle_may_begin_with_the_best_epoch(tmp_path):
    run_cycles(tmp_path, sparsity=0.36, carry="best")
    for number in (0, 1):  # masked weights are their own raw weights
        folder = tmp_path / f"cycle-{number:02}"
        assert [t.tolist() for t in weights(folder)[1].values()] == [
            t.tolist() for t in weights(folder, "raw.safetensors")[1].values()
        ]


def test_raw_weights_of_the_best_epoch_survive_an_interruption(tmp_path):
    asked = {"sparsity": 0.36, "carry": "best"}
    run_cycles(tmp_path / "whole", "st3", **asked)
    with pytest.raises(Stopped):
        run_cycles(tmp_path / "cut", "st3", listeners=[At(1, EPOCHS * BATCHES - 1, stop)], **asked)
    run_cycles(tmp_path / "cut", "st3", resume=True, **asked)
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    raw, best = (
        weights(tmp_path / "whole" / "cycle-01", name)[0] for name in ("raw.safetensors", "model.safetensors")
    )
    assert zeros(raw) == 0 < zeros(best)


@pytest.mark.parametrize("method", list(METHODS))
def test_any_method_that_is_not_refused_trains_inside(tmp_path, method):
    try:
        asked = spec(method, 0.36)
    except SettingsError:
        pytest.skip("refused, which test_cycles.py checks")
    train(asked, tmp_path / "run", splits=SPLITS)
    per_layer = asked.sparse.allocation.name not in ("global", "sigma")
    for name, asked_zeros in (("cycle-01", 133), ("cycle-02", 239)):
        assert 0 <= zeros(weights(tmp_path / "run" / name)[0]) - asked_zeros <= (3 if per_layer else 0)


# ---------------------------------------------------------------- pictures and dropout


def test_every_cycle_sees_new_pictures_as_one_long_training_would(tmp_path, starts):
    run_cycles(tmp_path, sparsity=0.36)
    streams = [cycle["pictures"] for cycle in starts]
    long = one_part._batches(spec(), SPLITS.train, _process(), seed=0)
    for number, stream in enumerate(streams):
        for epoch, batches in enumerate(stream):
            expected = [p for p, _ in long.epoch(number * EPOCHS + epoch)]
            assert all(torch.equal(a, b) for a, b in zip(batches, expected, strict=True))
    assert not any(
        torch.equal(streams[0][e][0], streams[1][f][0]) for e in range(EPOCHS) for f in range(EPOCHS)
    )
    states = [cycle["random"] for cycle in starts]
    assert not any(torch.equal(states[a], states[b]) for a, b in ((0, 1), (0, 2), (1, 2)))  # dropout


def test_with_the_seed_reset_every_cycle_sees_the_pictures_of_the_first(tmp_path, starts):
    run_cycles(tmp_path, sparsity=0.36, reset_seed=True)
    first, *others = starts
    for cycle in others:
        for epoch in range(EPOCHS):
            pairs = zip(cycle["pictures"][epoch], first["pictures"][epoch], strict=True)
            assert all(torch.equal(a, b) for a, b in pairs)
        assert torch.equal(cycle["random"], first["random"])  # dropout


def test_the_first_cycle_is_a_plain_dense_run(tmp_path, lrr):
    dense = compose(
        model={"name": NETWORK},
        sparse={"method": "dense"},
        recipe="digits",
        epochs=EPOCHS,
        changes={"batch_size": 16, "optimizer.lr": 0.05},
        machine={"device": "cpu", "threads": 1},
    )
    train(dense, tmp_path / "dense", splits=SPLITS)
    a, b = weights(tmp_path / "dense")[1], weights(lrr / "cycle-00")[1]
    assert all(torch.equal(a[name], b[name]) for name in a)


def _process():
    from st3.training.process import Process

    return Process(0, 1, torch.device("cpu"))


# ---------------------------------------------------------------- stopping and resuming


class At(Listener):
    """Does something in a cycle, after that many of its batches (0: before it begins)."""

    def __init__(self, cycle, batch, act):
        self.place, self.act, self.cycle = (cycle, batch), act, 0

    def on_part(self, title, folder, number, count, target):
        self.cycle = number
        self.check(0)

    def on_batch(self, epoch, batch, batches, rate):
        self.check((epoch - 1) * batches + batch)

    def check(self, batch):
        if self.place == (self.cycle, batch):
            self.act()


def stop():
    signal.raise_signal(signal.SIGINT)


def crash():
    raise MemoryError("as if")


@pytest.mark.parametrize(
    ("method", "place", "act", "error"),
    [
        ("gmp", (2, 4), stop, Stopped),
        ("st3", (1, 1), stop, Stopped),
        ("gmp", (3, 0), crash, MemoryError),
        ("st3", (1, 3), crash, MemoryError),
    ],
    ids=["mid-epoch", "first-step", "between-cycles", "crash"],
)
def test_an_interrupted_run_resumes_bit_for_bit(request, tmp_path, method, place, act, error):
    whole = request.getfixturevalue("lrr" if method == "gmp" else "lrr_st3")
    with pytest.raises(error):
        run_cycles(tmp_path / "cut", method, listeners=[At(*place, act)])
    assert not (tmp_path / "cut" / "summary.json").exists()
    run_cycles(tmp_path / "cut", method, resume=True)
    assert results(tmp_path / "cut") == results(whole)


def die_within_a_cycle(folder):
    run_cycles(folder, listeners=[At(2, 4, die)])


def die_writing_what_is_handed_over(folder):
    # only raw weights are written by one_part: this is cycle 1
    one_part.write_weights = replace_nth_call(2, after_half, one_part.write_weights)
    run_cycles(folder)


@pytest.mark.parametrize(
    "death",
    [pytest.param(die_within_a_cycle, marks=pytest.mark.slow), die_writing_what_is_handed_over],
    ids=lambda death: death.__name__,
)
def test_a_killed_run_resumes_bit_for_bit(lrr, tmp_path, death):
    code = f"""
import sys
from pathlib import Path
from tests.experiments.protocols.test_cycle_runs import *
{death.__name__}(Path(sys.argv[1]))
"""
    dead = run_python(code, tmp_path / "run")
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    run_cycles(tmp_path / "run", resume=True)
    assert results(tmp_path / "run") == results(lrr)


def test_a_finished_run_is_not_trained_again_and_missing_pages_are_written(lrr, tmp_path):
    shutil.copytree(lrr, tmp_path / "run")
    (tmp_path / "run" / "report.html").unlink()

    class Never(Listener):
        def on_part(self, title, folder, number, count, target):
            raise AssertionError

        def on_batch(self, epoch, batch, batches, rate):
            raise AssertionError

    summary = run_cycles(tmp_path / "run", resume=True, listeners=[Never()])
    assert summary == parse((lrr / "summary.json").read_bytes())
    assert (tmp_path / "run" / "report.html").exists()


def test_no_other_run_uses_the_folder_meanwhile(tmp_path):
    def another():
        with pytest.raises(RunFolderError, match="another process is training into"):
            run_cycles(tmp_path, sparsity=0.2, resume=True)

    run_cycles(tmp_path, sparsity=0.2, listeners=[At(1, 1, another)])


def test_a_cycle_is_not_resumed_by_itself(lrr):
    from st3.experiments.spec import read_spec

    cycle = lrr / "cycle-01"
    with pytest.raises(
        SettingsError, match="this is cycle 1 of a larger run: resume that run, in the folder above"
    ):
        train(read_spec(cycle / "spec.json"), cycle, resume=True, splits=SPLITS)


# ---------------------------------------------------------------- what it leaves behind


def test_the_summary_sums_up_all_cycles(lrr):
    summary = json.loads((lrr / "summary.json").read_text())
    each = [json.loads((cycle / "summary.json").read_text()) for cycle in cycles_of(lrr)]
    assert [cycle["target"] for cycle in summary["cycles"]] == [None, 0.2, 0.36, 0.488, 0.5]
    assert [cycle["test"] for cycle in summary["cycles"]] == [one["test"] for one in each]
    assert summary["test"] == each[-1]["test"]
    assert (summary["epochs"], summary["steps"]) == (5 * EPOCHS, 5 * EPOCHS * BATCHES)
    assert summary["seconds"] == pytest.approx(sum(one["seconds"] for one in each))
    assert summary["model"] == "cycle-04/model.safetensors"
    assert (lrr / summary["sparse_model"]).is_file()
    assert summary["best_epoch"] == 4 * EPOCHS + each[-1]["best_epoch"]


def test_the_run_reads_as_one_long_training_and_each_cycle_as_a_run(lrr):
    run = Run.open(lrr)
    assert [epoch["epoch"] for epoch in run.epochs] == list(range(1, 5 * EPOCHS + 1))
    assert [step["step"] for step in run.steps] == list(range(1, 5 * EPOCHS * BATCHES + 1))
    assert run.epochs[-1]["seconds"] == pytest.approx(run.summary["seconds"], abs=0.01)
    assert (run.planned_epochs, len(run.parts), run.best["epoch"]) == (10, 5, run.summary["best_epoch"])
    one = Run.open(lrr / "cycle-02")
    assert (len(one.epochs), one.planned_epochs, one.parts, one.target) == (EPOCHS, EPOCHS, (), 0.36)
    assert one.is_finished


def test_pages_plots_and_models_can_be_made_from_the_run_and_from_each_cycle(lrr, tmp_path):
    page = (lrr / "report.html").read_text()
    assert "gmp at 50\N{NO-BREAK SPACE}% sparsity in 5 cycles" in page
    assert "<h2>Cycles</h2>" in page
    assert (lrr / "figures" / "cycles.svg").exists()
    one = write_page(lrr / "cycle-03", tmp_path / "one.html").read_text()
    assert "sparsity, cycle 3" in one
    assert "<h2>Cycles</h2>" not in one
    assert plot_runs([lrr, *cycles_of(lrr)], tmp_path / "all.svg").exists()
    for folder, sparsity in ((lrr, 332 / WEIGHTS), (lrr / "cycle-01", 133 / WEIGHTS)):
        assert inspect_stored(folder).report.sparsity == sparsity


def test_the_page_of_an_unfinished_run_shows_the_cycles_so_far(tmp_path):
    with pytest.raises(Stopped):
        run_cycles(tmp_path / "run", listeners=[At(1, BATCHES + 1, stop)])
    page = write_page(tmp_path / "run").read_text()
    assert "Not finished: this page shows 3 of 10 epochs." in page
    assert "1 epochs so far" in page
    assert f"st3 train --run {tmp_path / 'run'} --resume" in page
    of_cycle = write_page(tmp_path / "run" / "cycle-01").read_text()
    assert f"st3 train --run {tmp_path / 'run'} --resume" in of_cycle


# ---------------------------------------------------------------- several processes


def stable_spec(sharded=False):
    """Return a spec in which rounding errors stay small: a low rate, and no dropout, which differs by process."""
    return compose(
        model={"name": "tests.experiments.protocols.test_cycle_runs:network_without_dropout"},
        sparse={"method": "st3", "sparsity": 0.36},
        recipe="digits",
        epochs=1,
        protocol="lrr",
        changes={"batch_size": 23, "optimizer.lr": 0.005},
        machine={"device": "cpu", "threads": 1, "sharded": sharded},
    )


def network_without_dropout(classes=2, channels=1):
    """Build the same network without dropout."""
    return nn.Sequential(*(part for part in network(classes, channels) if not isinstance(part, nn.Dropout)))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "alone"
    train(stable_spec(), folder, splits=SPLITS)
    return folder


@pytest.mark.parametrize("sharded", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["ddp", "fsdp"])
@on_ranks(2)
def test_two_processes_train_the_same_cycles_as_one_and_resume_bit_for_bit(alone, tmp_path, sharded):
    train(stable_spec(sharded), tmp_path / "two", splits=SPLITS)
    with pytest.raises(Stopped):
        train(stable_spec(sharded), tmp_path / "cut", splits=SPLITS, listeners=[At(1, 2, stop)])
    train(stable_spec(sharded), tmp_path / "cut", splits=SPLITS, resume=True)
    two, cut, one = (
        weights(folder / "cycle-02")[1] for folder in (tmp_path / "two", tmp_path / "cut", alone)
    )
    assert all(torch.equal(tensor, cut[name]) for name, tensor in two.items())
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-3, atol=1e-4)
