"""From options to a spec."""

import json

import pytest

from st3.cli.given import Given, said
from st3.experiments.spec import compose
from st3.training.sections import SettingsError


@pytest.mark.parametrize(
    ("given", "names_a_run"),
    [
        (Given(), False),
        (Given(machine={"device": "cpu"}), False),
        (Given(data={"dir": "/data", "download": True}), False),
        (Given(changes=("machine.threads=2", "data.dir=/x")), False),
        (Given(data={"name": "digits"}), True),
        (Given(epochs=3), True),
        (Given(seeds={"data": 0}), True),
        (Given(dense_twin=False), True),
        (Given(changes=("optimizer.lr=1",)), True),
    ],
)
def test_circumstances_do_not_name_a_run(given, names_a_run):
    assert given.names_a_run is names_a_run


def test_faults_of_all_options_are_told_at_once():
    given = Given(
        data={"name": "digit"},
        sparse={"method": "st4", "sparsity": 1.5, "allocation": "globl"},
        epochs=0,
        changes=("lr", "optimizer.lrr=1", "machine.device=cpu"),
    )
    with pytest.raises(SettingsError) as caught:
        given.spec()
    told = "\n".join(caught.value.faults)
    for part in (
        "'lr' is not of the form key=value, such as optimizer.lr=0.05",
        "epochs must be at least 1, got 0",
        "sparse.sparsity",
        "unknown key 'recipe.optimizer.lrr'; did you mean 'lr'?",
        "unknown data set 'digit'; did you mean 'digits'?",
        "unknown method 'st4'; did you mean 'st3'?",
        "unknown allocation 'globl'; did you mean 'global'?",
    ):
        assert part in told


def test_a_stored_spec_is_taken_under_the_new_circumstances(tmp_path):
    path = tmp_path / "spec.json"
    stored = compose(epochs=7, machine={"threads": 2})
    path.write_text(json.dumps(stored.model_dump(mode="json")))
    given = Given(machine={"device": "cpu"}, data={"dir": "/data"}, changes=("machine.workers=3",))
    spec = given.stored_spec(path)
    assert spec.recipe == stored.recipe
    assert (spec.machine.device, spec.machine.threads, spec.machine.workers) == ("cpu", 2, 3)
    assert spec.data.dir == "/data"


def test_zero_and_false_are_said_too():
    assert said(seed=0, compile=False, data=None) == {"seed": 0, "compile": False}
