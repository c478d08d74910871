"""Epochs after a recipe's schedule: masks fixed, then the rate rewound from the best weights; counts of switches."""

import json
import signal

import pytest
import torch

from st3.experiments.run import train
from st3.experiments.spec import compose
from st3.files.weights import read_weights
from st3.training.listener import Listener
from st3.training.recipe import load_recipe
from st3.training.sections import SettingsError
from st3.training.stop import Stopped


def make_spec(**changes):
    changes = {"freeze_epochs": 1, "rewind": True, "record.switch_windows": 2, **changes}
    return compose(epochs=3, protocol="single", changes=changes)


def read_epochs(folder):
    return [json.loads(line) for line in (folder / "epochs.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phases") / "run"
    return folder, train(make_spec(), folder)


def test_masks_are_fixed_after_the_schedule_and_the_rate_is_rewound(run):
    folder, summary = run
    epochs = read_epochs(folder)
    assert summary["epochs"] == len(epochs) == 7  # 3 + 1 + 3
    rates = [epoch["rate"] for epoch in epochs]
    assert rates[4:] == rates[:3]
    assert [epoch["switches"] for epoch in epochs[4:]] == [{"revived": 0, "zeroed": 0}] * 3
    assert sum(epochs[2]["switches"].values()) > 0
    assert all(epoch["at_target"] for epoch in epochs[3:])
    assert summary["sparsity"] == epochs[-1]["sparsity"]


def test_switches_of_every_weight_are_recorded(run):
    folder, _ = run
    windows = json.loads((folder / "switches.json").read_text())["windows"]
    assert [(w["first_epoch"], w["last_epoch"]) for w in windows] == [(1, 4), (5, 7)]
    for window in windows:
        assert sum(window["active"].values()) + sum(window["zeroed"].values()) == 23808
    assert all(int(times) % 2 for times in windows[0]["zeroed"])  # from active to zeroed: an odd number
    assert set(windows[1]["zeroed"]) == {"0"}


def test_a_rewind_takes_the_masks_of_the_best_epoch_not_those_of_the_last(tmp_path):
    spec = compose(epochs=3, protocol="single", sparse={"method": "rigl"}, changes={"rewind": True})
    train(spec, tmp_path / "run")
    epochs = read_epochs(tmp_path / "run")
    best = max(epoch["epoch"] for epoch in epochs[:3] if epoch["is_best"])
    assert best < 3, "the last epoch was the best: the test shows nothing"
    assert epochs[3]["sparsity"] == epochs[best - 1]["sparsity"]


class StopIn(Listener):
    """Asks the training to stop in an epoch, after some batches."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_batch(self, epoch, batch, batches, rate):
        if (epoch, batch) == (self.epoch, 3):
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_run_stopped_in_any_phase_continues_bit_for_bit(run, tmp_path, epoch):
    folder, _ = run
    with pytest.raises(Stopped):
        train(make_spec(), tmp_path / "run", listeners=[StopIn(epoch)])
    train(make_spec(), tmp_path / "run", resume=True)
    expected, found = (read_weights(path / "model.safetensors")[0] for path in (folder, tmp_path / "run"))
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert (tmp_path / "run" / "switches.json").read_text() == (folder / "switches.json").read_text()


def test_a_run_is_not_resumed_with_another_number_of_windows(tmp_path):
    with pytest.raises(Stopped):
        train(make_spec(), tmp_path / "run", listeners=[StopIn(1)])
    with pytest.raises(ValueError, match="its switches were counted in 2 windows, not in 4"):
        train(make_spec(**{"record.switch_windows": 4}), tmp_path / "run", resume=True)


def test_the_recipes_of_the_published_program_have_its_epochs():
    assert load_recipe("imagenet-code").total_epochs == 100 + 10 + 100
    assert load_recipe("cifar-code").total_epochs == 160 + 10
    assert load_recipe("imagenet").total_epochs == 100
    assert load_recipe("imagenet-code").scaled_to(10).total_epochs == 10 + 1 + 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"record.switch_windows": 9}, "record.switch_windows is 9, but the run has 7 epochs"),
        ({"machine.sharded": True}, "record.switch_windows needs whole weights"),
    ],
)
def test_counts_that_cannot_be_made_are_refused_before_training(changes, message):
    with pytest.raises(SettingsError, match=message):
        make_spec(**changes)
