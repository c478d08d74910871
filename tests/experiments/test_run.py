"""A run on the digits: what it leaves behind, and that the spec alone determines the result."""

import json
import os
import signal

import pytest
import torch
from tests.processes import run_python
from torch import nn

from st3.core.report import report
from st3.data import DATASETS, Batches
from st3.experiments.folder import RunFolderError
from st3.experiments.run import train
from st3.experiments.spec import compose
from st3.files.weights import read_weights
from st3.models import MODELS
from st3.training.checkpoint import CheckpointFolder
from st3.training.listener import Listener
from st3.training.metrics import DivergedError
from st3.training.sealed import parse, parse_lines
from st3.training.sections import SettingsError
from st3.training.stop import Stopped

EPOCHS = 3
HALF = {"device": "cpu", "threads": 1, "precision": "bfloat16"}
BATCHES = 19  # 1,197 pictures in batches of 64


def spec(**more):
    return compose(
        **{"epochs": EPOCHS, "protocol": "single", "machine": {"device": "cpu", "threads": 1}, **more}
    )


def lines(folder, name):
    return [line.content for line in parse_lines((folder / f"{name}.jsonl").read_bytes())]


def results(folder):
    """Return everything that a run has found out, without the time it took."""
    summary = parse((folder / "summary.json").read_bytes())
    summary.pop("seconds")
    epochs = [{k: v for k, v in line.items() if k != "seconds"} for line in lines(folder, "epochs")]
    return summary, epochs, lines(folder, "steps"), (folder / "layers.jsonl").read_text()


def same_weights(one, other):
    a, b = (read_weights(folder / "model.safetensors")[0] for folder in (one, other))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(spec(), folder)
    return folder


class At(Listener):
    """Does something after that batch of the run."""

    def __init__(self, batch, act):
        self.batch, self.act = batch, act

    def on_batch(self, epoch, batch, batches, rate):
        if (epoch - 1) * batches + batch == self.batch:
            self.act()


def crash():
    raise MemoryError("as if")


def test_it_leaves_a_model_and_its_evidence(whole):
    names = {path.name for path in whole.iterdir()}
    assert names >= {
        "spec.json",
        "versions.json",
        "epochs.jsonl",
        "steps.jsonl",
        "layers.jsonl",
        "summary.json",
    }
    assert names >= {"model.safetensors", "report.html", "figures", "checkpoints"}
    assert not [path for path in whole.rglob("*") if path.name.endswith(".part")]
    assert [line["epoch"] for line in lines(whole, "epochs")] == [1, 2, 3]
    assert [line["step"] for line in lines(whole, "steps")] == list(range(1, EPOCHS * BATCHES + 1))


def test_the_file_has_exactly_the_sparsity_asked_for(whole):
    weights, about = read_weights(whole / "model.safetensors")
    model = MODELS[about["model"]["name"]](classes=10, channels=1)
    model.load_state_dict(weights)
    found = report(model)
    assert found.zeros == int((found.numel - 1) * 0.9) + 1
    assert json.loads((whole / "summary.json").read_text())["sparsity"] == found.sparsity


def test_the_test_accuracy_is_that_of_the_model_in_the_file(whole):
    model = MODELS["digits_cnn"]()
    model.load_state_dict(read_weights(whole / "model.safetensors")[0])
    model.eval()
    pictures, labels = next(Batches(DATASETS["digits"]().test, 400, seed=None).epoch())
    with torch.no_grad():
        right = (model(pictures).argmax(1) == labels).float().mean().item()
    assert json.loads((whole / "summary.json").read_text())["test"]["accuracy"] == pytest.approx(right)


def test_the_best_epoch_is_chosen_among_those_at_the_target(whole):
    epochs = lines(whole, "epochs")
    assert [line["at_target"] for line in epochs] == [False, True, True]  # the ramp ends at epoch 1.8
    assert not any(line["is_best"] and not line["at_target"] for line in epochs)
    best = max(
        (line for line in epochs if line["at_target"]), key=lambda line: line["validation"]["accuracy"]
    )
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["best_epoch"] == best["epoch"]
    assert summary["validation"] == pytest.approx(best["validation"])


def test_the_metrics_of_layers_add_up_to_those_of_the_epoch(whole):
    for epoch, layers in zip(lines(whole, "epochs"), lines(whole, "layers"), strict=True):
        rows = layers["layers"].values()
        assert sum(row["zeros"] for row in rows) / sum(row["weights"] for row in rows) == epoch["sparsity"]
        if epoch["switches"]:
            assert sum(row["revived"] for row in rows) == epoch["switches"]["revived"]
    first, second, _ = lines(whole, "epochs")
    assert first["switches"] is None
    zeros = [sum(row["zeros"] for row in line["layers"].values()) for line in lines(whole, "layers")]
    assert zeros[1] - zeros[0] == second["switches"]["zeroed"] - second["switches"]["revived"]


@pytest.mark.parametrize("batch", [1, 19, 30, 38, 56])
def test_after_a_crash_it_resumes_bit_for_bit(whole, tmp_path, batch):
    folder = tmp_path / "run"
    with pytest.raises(MemoryError):
        train(spec(), folder, listeners=[At(batch, crash)])
    train(spec(), folder, resume=True)
    assert same_weights(folder, whole)
    assert results(folder) == results(whole)


@pytest.mark.parametrize(
    ("batch", "number"), [(5, signal.SIGTERM), (30, signal.SIGINT), (57, signal.SIGTERM)]
)
def test_asked_to_stop_it_saves_first_and_resumes_bit_for_bit(whole, tmp_path, batch, number):
    folder = tmp_path / "run"
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match=f"after step {batch}; everything is saved") as stopped:
        train(spec(), folder, listeners=[At(batch, lambda: os.kill(os.getpid(), number))])
    assert stopped.value.signal_number == number
    assert signal.getsignal(number) == before
    assert (folder / "checkpoints" / f"step-{batch:09d}.pt").exists()
    train(spec(), folder, resume=True)
    assert same_weights(folder, whole)
    assert results(folder) == results(whole)


def test_stopped_twice_in_one_epoch_with_workers_it_resumes_bit_for_bit(whole, tmp_path):
    folder = tmp_path / "run"
    with_workers = spec(machine={"device": "cpu", "threads": 1, "workers": 2})
    for batch in (21, 25):
        with pytest.raises(Stopped):
            train(
                with_workers,
                folder,
                resume=batch > 21,
                listeners=[At(batch, lambda: signal.raise_signal(15))],
            )
    train(spec(), folder, resume=True)
    assert same_weights(folder, whole)
    assert results(folder) == results(whole)


def test_a_second_interrupt_stops_at_once(tmp_path):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(spec(), tmp_path / "run", listeners=[At(3, twice)])


def test_checkpoints_within_an_epoch_are_taken_after_some_minutes(whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(MemoryError):
        train(spec(), folder, minutes=0, listeners=[At(24, crash)])
    assert sorted(path.name for path in (folder / "checkpoints").glob("*.pt")) == [
        "step-000000022.pt",
        "step-000000023.pt",
    ]
    train(spec(), folder, resume=True)
    assert same_weights(folder, whole)


def test_dropout_resumes_bit_for_bit(tmp_path):
    def network():
        torch.manual_seed(3)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))

    train(spec(), tmp_path / "whole", model=network())
    with pytest.raises(MemoryError):
        train(spec(), tmp_path / "cut", model=network(), minutes=0, listeners=[At(25, crash)])
    train(spec(), tmp_path / "cut", model=network(), resume=True)
    assert same_weights(tmp_path / "cut", tmp_path / "whole")


def test_a_run_is_not_overwritten_and_not_mixed_with_another(whole):
    with pytest.raises(RunFolderError, match="already holds a run: add --resume to continue it"):
        train(spec(), whole)
    with pytest.raises(RunFolderError, match=r"holds another run \(sparse.sparsity: 0.8, not 0.9\)"):
        train(spec(sparse={"sparsity": 0.8}), whole, resume=True)


def test_other_files_are_not_mixed_with_a_run(tmp_path):
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(RunFolderError, match="holds other files and no run"):
        train(spec(), tmp_path)


def test_a_finished_run_returns_its_summary(whole):
    before = (whole / "summary.json").stat().st_mtime_ns
    assert train(spec(), whole, resume=True) == parse((whole / "summary.json").read_bytes())
    assert (whole / "summary.json").stat().st_mtime_ns == before


def test_weights_and_data_have_separate_seeds(whole, tmp_path):
    first = {}
    for name, seeds in {"init": {"init": 1}, "data": {"data": 1}}.items():
        train(spec(epochs=1, seeds=seeds), tmp_path / name)
        first[name] = lines(tmp_path / name, "steps")[0]["loss"]
    train(spec(epochs=1), tmp_path / "zero")
    assert len({*first.values(), lines(tmp_path / "zero", "steps")[0]["loss"]}) == 3


def test_the_dense_twin_starts_from_the_same_weights_and_sees_the_same_pictures(tmp_path):
    train(spec(epochs=1, protocol="twin"), tmp_path)
    dense, sparse = (lines(folder, "steps") for folder in (tmp_path / "dense", tmp_path))
    assert dense[0]["loss"] == sparse[0]["loss"]
    assert dense[-1]["loss"] != sparse[-1]["loss"]
    assert json.loads((tmp_path / "dense" / "summary.json").read_text())["sparsity"] == 0
    assert not (tmp_path / "dense" / "layers.jsonl").exists()


def test_half_precision_trains(tmp_path):
    # In another process: some virtual machines announce matrix instructions that they do not have.
    code = "import sys; from tests.experiments.test_run import *; train(spec(machine=HALF), sys.argv[1])"
    done = run_python(code, tmp_path, ONEDNN_MAX_CPU_ISA="AVX512_CORE")  # read when a network first computes
    assert done.returncode == 0, done.stderr
    # ten classes, after three epochs
    assert json.loads((tmp_path / "summary.json").read_text())["test"]["accuracy"] > 0.4
    weights = read_weights(tmp_path / "model.safetensors")[0]
    assert {tensor.dtype for tensor in weights.values()} <= {torch.float32, torch.int64}


def test_deterministic_by_flag(tmp_path):
    try:
        train(spec(epochs=1, machine={"device": "cpu", "deterministic": True}), tmp_path)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_loss_that_is_not_finite_ends_the_run_with_advice(tmp_path):
    changes = {"optimizer.lr": 1e30, "clip_norm": None}
    with pytest.raises((DivergedError, ValueError), match="lower the learning rate"):
        train(spec(changes=changes), tmp_path)


def test_a_network_that_does_not_fit_the_data_is_refused_before_the_first_batch(tmp_path):
    with pytest.raises(SettingsError, match=r"returns \(2, 7\) for 2 pictures, but 'digits' has 10 classes"):
        train(spec(), tmp_path / "a", model=nn.Sequential(nn.Flatten(), nn.Linear(64, 7)))
    with pytest.raises(SettingsError, match=r"cannot take pictures of 'digits' \(1x8x8\)"):
        train(spec(), tmp_path / "b", model=nn.Conv2d(3, 10, 3))


def test_a_checkpoint_of_another_spec_or_other_data_is_refused(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(MemoryError):
        train(spec(), folder, listeners=[At(30, crash)])
    stored = json.loads((folder / "spec.json").read_text())
    stored["sparse"]["sparsity"] = 0.5
    (folder / "spec.json").write_text(json.dumps(stored))
    with pytest.raises(
        ValueError, match=r"spec\.json: is damaged: its checksum does not match \(if it was edited"
    ):
        train(spec(sparse={"sparsity": 0.5}), folder, resume=True)
    del stored["checksum"]
    (folder / "spec.json").write_text(json.dumps(stored))
    with pytest.raises(ValueError, match=r"step-000000019\.pt belongs to another spec or other data"):
        train(spec(sparse={"sparsity": 0.5}), folder, resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: [state], r"step-000000019\.pt is not a checkpoint of st3 train: delete it"),
        (
            lambda state: state | {"format": 7},
            r"step-000000019\.pt has format 7, but this version of st3 reads 2: finish the run with",
        ),
        (
            lambda state: {k: v for k, v in state.items() if k not in ("model", "best")},
            r"checkpoint .*step-000000019\.pt lacks model, best: delete it",
        ),
    ],
)
def test_a_checkpoint_of_another_format_is_refused(tmp_path, change, message):
    folder = tmp_path / "run"
    with pytest.raises(MemoryError):
        train(spec(), folder, listeners=[At(30, crash)])
    path = folder / "checkpoints" / "step-000000019.pt"
    torch.save(change(torch.load(path, weights_only=True)), path)
    with pytest.raises(ValueError, match=message):
        train(spec(), folder, resume=True)


def test_a_checkpoint_cannot_replace_methods_of_the_progress(whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(MemoryError):
        train(spec(), folder, listeners=[At(30, crash)])
    path = folder / "checkpoints" / "step-000000019.pt"
    state = torch.load(path, weights_only=True)
    state["progress"]["step"] = 0  # the name of a method
    torch.save(state, path)
    train(spec(), folder, resume=True)
    assert same_weights(folder, whole)


def test_the_best_weights_survive_a_damaged_checkpoint(whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(MemoryError):
        train(spec(), folder, listeners=[At(57, crash)], minutes=0)
    newest = max((folder / "checkpoints").glob("*.pt"))
    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="cannot be read"):
        train(spec(), folder, resume=True)
    assert same_weights(folder, whole)


def test_two_processes_do_not_train_into_one_folder(tmp_path):
    folder = tmp_path / "run"
    code = "import sys; from tests.experiments.test_run import *; train(spec(), sys.argv[1], resume=True)"
    found = []

    train(spec(), folder, listeners=[At(3, lambda: found.append(run_python(code, folder)))])
    assert found[0].returncode == 1
    assert "another process is training into" in found[0].stderr
    assert [line["epoch"] for line in lines(folder, "epochs")] == [1, 2, 3]


def test_every_session_of_a_run_is_recorded(tmp_path):
    with pytest.raises(MemoryError):
        train(spec(epochs=2), tmp_path, listeners=[At(20, crash)])
    train(spec(epochs=2), tmp_path, resume=True)
    sessions = lines(tmp_path, "sessions")
    assert [session["first_step"] for session in sessions] == [0, 19]
    assert sessions[1]["torch"] == torch.__version__


def test_a_page_that_is_missing_is_written_when_a_finished_run_is_resumed(tmp_path):
    train(spec(epochs=1), tmp_path)
    (tmp_path / "report.html").unlink()
    train(spec(epochs=1), tmp_path, resume=True)
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("content", ["{", "[]", "[" * 99_999], ids=["cut", "a list", "nested"])
def test_a_damaged_summary_is_reported(tmp_path, content):
    train(spec(epochs=1), tmp_path)
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(
        RunFolderError, match=r"summary\.json is damaged .*: delete it, and --resume writes it again"
    ):
        train(spec(epochs=1), tmp_path, resume=True)


def test_workers_survive_a_signal_to_the_whole_group_until_all_is_saved(whole, tmp_path):
    folder = tmp_path / "run"
    code = (
        "import sys; from tests.experiments.test_run import *\n"
        "os.setsid()\n"
        "machine = {'device': 'cpu', 'threads': 1, 'workers': 2}\n"
        "act = lambda: os.killpg(0, signal.SIGTERM)\n"
        "try: train(spec(machine=machine), sys.argv[1], listeners=[At(25, act)])\n"
        "except Stopped as stopped: print(stopped)"
    )
    done = run_python(code, folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "after step 25; everything is saved" in done.stdout
    train(spec(), folder, resume=True)
    assert same_weights(folder, whole)


def test_settings_that_the_sparsifier_refuses_are_refused_before_the_twin_is_trained(tmp_path):
    asked = spec(protocol="twin", changes={"sparse.exclude": ["convolution*"]})
    with pytest.raises((ValueError, LookupError), match="convolution"):
        train(asked, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("method", "zeros"), [("acdc", 21_427), ("sr_ste", 11_760), ("s_ste", 11_760)])
def test_methods_with_their_own_ramp_or_sparsity_train_by_name(method, zeros, tmp_path):
    """There are 23,808 weights; N:M leaves the first convolution dense: one input channel, 288 weights."""
    summary = train(spec(epochs=1, sparse={"method": method}), tmp_path / "run")
    assert summary["parameters"] - summary["active_parameters"] == zeros


def test_a_checkpoint_of_an_earlier_version_keeps_its_best_epoch(whole, tmp_path):
    """There the best score was called accuracy."""
    with pytest.raises(Stopped):
        train(
            spec(),
            tmp_path / "run",
            listeners=[At(BATCHES * 2 + 1, lambda: signal.raise_signal(signal.SIGINT))],
        )
    folder = CheckpointFolder(tmp_path / "run" / "checkpoints", keep=1)
    _, state = folder.newest()
    assert state["progress"]["best_epoch"] == 2
    state["progress"]["best_accuracy"] = 1.0  # no later epoch can be better
    del state["progress"]["best_score"]
    folder.save(state, BATCHES * 2 + 1)
    assert train(spec(), tmp_path / "run", resume=True)["best_epoch"] == 2
