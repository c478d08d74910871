"""Several processes train as one does: the same pictures, the same batch norm, the same weights up to rounding."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from tests.processes import on_ranks, run_python
from torch import distributed as dist
from typer.testing import CliRunner

from st3.cli.app import app
from st3.experiments.run import train
from st3.experiments.spec import compose
from st3.files.weights import read_weights
from st3.training.listener import Listener
from st3.training.stop import Stopped

ROOT = Path(__file__).parents[2]
# Rounding errors must stay small: few steps, a low rate, the target soon reached.
CHANGES = {"optimizer.lr": 0.01, "batch_size": 133}  # 9 batches an epoch, in shares of 66 and 67


def spec(**machine):
    machine = {"device": "cpu", "threads": 1, **machine}
    return compose(epochs=2, protocol="single", machine=machine, changes=CHANGES, sparse={"sparsity": 0.8})


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "alone"
    train(spec(), folder)
    return folder


def weights(folder):
    return read_weights(Path(folder) / "model.safetensors")[0]


def require_close(folder, alone):
    found, expected = weights(folder), weights(alone)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)
        assert ((found[name] == 0) == (tensor == 0)).float().mean() > 0.999
    summary = [json.loads((Path(f) / "summary.json").read_text()) for f in (folder, alone)]
    assert summary[0]["sparsity"] == summary[1]["sparsity"]
    assert summary[0]["validation"]["loss"] == pytest.approx(summary[1]["validation"]["loss"], rel=1e-3)


@pytest.mark.parametrize("sharded", [False, True], ids=["ddp", "fsdp"])
@on_ranks(2)
def test_two_processes_train_the_same_model_as_one(alone, tmp_path, sharded):
    train(spec(sharded=sharded), tmp_path / "two")
    if dist.get_rank() == 0:
        require_close(tmp_path / "two", alone)
        assert json.loads((tmp_path / "two" / "versions.json").read_text())["processes"] == 2


class Tied(torch.nn.Module):
    """Layers in a list, two of which share a weight."""

    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.Linear(64, 64, bias=False) for _ in range(3)])
        self.parts[2].weight = self.parts[0].weight
        self.last = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = x.flatten(1)
        for part in self.parts:
            x = part(x).relu()
        return self.last(x)


@on_ranks(2)
def test_lists_of_modules_and_tied_weights_can_be_sharded(tmp_path):
    torch.manual_seed(0)
    summary = train(spec(sharded=True), tmp_path, model=Tied())
    assert summary["sparsity"] >= 0.8 - 1e-3


class StopAfter(Listener):
    def __init__(self, batch):
        self.batch = batch

    def on_batch(self, epoch, batch, batches, rate):
        if (epoch - 1) * batches + batch == self.batch:
            signal.raise_signal(signal.SIGTERM)  # to the first process only; it must tell the other


# Shards resume bit for bit in tests/distributed, too, in less time.
@pytest.mark.parametrize("sharded", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["ddp", "fsdp"])
@on_ranks(2)
def test_they_stop_together_and_resume_bit_for_bit(tmp_path, sharded):
    train(spec(sharded=sharded), tmp_path / "whole")
    with pytest.raises(Stopped, match="after step 13"):
        train(spec(sharded=sharded), tmp_path / "cut", listeners=[StopAfter(13)])
    train(spec(sharded=sharded), tmp_path / "cut", resume=True)
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture
def begun(tmp_path):
    """Return the folder of a run that this process has begun and stopped."""
    with pytest.raises(Stopped, match="after step 9"):
        train(spec(), tmp_path / "run", listeners=[StopAfter(9)])
    return tmp_path / "run"


@on_ranks(2)
def test_two_processes_resume_what_one_has_begun(alone, begun):
    train(spec(), begun, resume=True)
    if dist.get_rank() == 0:
        require_close(begun, alone)


@on_ranks(2)
def test_an_error_of_the_folder_is_raised_in_every_process(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="holds other files and no run"):
        train(spec(), tmp_path)


def torchrun(*arguments, **environment):
    words = ["--standalone", "--nproc-per-node", "2"]
    words += ["-m", "st3", "--", "train", *arguments]  # torchrun would take --run for its --run-path
    path = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
    code = "from torch.distributed.run import main; main()"
    return run_python(code, *words, name="torchrun", PYTHONPATH=path, **environment)


def mortal_network(classes=10, channels=1):
    """Build the digits network; with MORTAL set, the second process dies in the second epoch."""
    from st3.models import MODELS

    model = MODELS["digits_cnn"](classes=classes, channels=channels)
    seen = []

    def die(module, inputs):
        if module.training:
            seen.append(0)
        if len(seen) == 25 and os.environ.get("RANK") == "1" and os.environ.get("MORTAL"):
            os._exit(9)

    model.register_forward_pre_hook(die)
    return model


@pytest.fixture(scope="module")
def dead(tmp_path_factory):
    """Return the folder of a run of two processes, one of which has died; and its words, code, and last words."""
    folder = tmp_path_factory.mktemp("dead") / "run"
    network = "tests.experiments.test_processes:mortal_network"
    words = ["--model", network, "--epochs", "3", "--no-dense-twin", "--run", str(folder)]
    done = torchrun(*words, MORTAL="1")
    return folder, words, done.returncode, done.stderr


@pytest.mark.slow
def test_when_a_process_dies_the_run_ends_with_a_clear_message(dead):
    _, _, code, error = dead
    assert code != 0
    assert "lost its connection to another one, which seems to have died" in error
    assert "--resume" in error


@pytest.mark.slow
@on_ranks(2)
def test_when_a_process_has_died_the_run_can_be_resumed(dead):
    folder, words, _, _ = dead
    again = CliRunner().invoke(app, ["train", *words, "--resume"])
    assert again.exit_code == 0, again.output
    dist.barrier()
    assert json.loads((folder / "summary.json").read_text())["epochs"] == 3
