"""From options to a spec."""

from dataclasses import replace

import pytest

from st3.cli.given import Given, said
from st3.experiments.spec import ModelSpec, compose
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
        sparse={"method": "st33", "sparsity": 1.5, "allocation": "globl"},
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
        "unknown method 'st33'; did you mean 'st3'?",
        "unknown allocation 'globl'; did you mean 'global'?",
    ):
        assert part in told


def test_a_stored_spec_is_taken_under_the_new_circumstances():
    stored = compose(data={"name": "cifar10"}, epochs=7, machine={"threads": 2})
    given = Given(machine={"device": "cpu"}, data={"dir": "/data"}, changes=("machine.workers=3",))
    for options in (given, replace(given, epochs=7, data={"name": "cifar10", "dir": "/data"})):
        spec = options.over(stored)
        assert spec.differences(stored) == []
        assert (spec.machine.device, spec.machine.threads, spec.machine.workers) == ("cpu", 2, 3)
        assert spec.data.dir == "/data"


def test_options_are_laid_over_the_stored_spec_and_not_over_what_is_usual():
    stored = compose(
        data={"name": "cifar10", "options": {"padding": "edge"}},
        sparse={"method": "feather", "arguments": {"power": 2.0}},
        epochs=7,
        changes={"optimizer.lr": 0.05},
    )
    for given in (
        Given(sparse={"sparsity": 0.9}),
        Given(changes=("sparse.arguments.power=2.0",)),
        Given(changes=("data.options.padding=edge",)),
        Given(recipe="cifar", changes=("optimizer.lr=0.05",)),
        Given(epochs=7),
    ):
        assert given.over(stored) == stored
    assert Given(sparse={"method": "st3"}).over(stored).differences(stored) == [
        "sparse.method: 'st3', not 'feather'",
        "sparse.arguments.power: None, not 2.0",
    ]


def test_the_whole_command_of_a_run_agrees_with_it():
    for given in (
        Given(recipe="cifar", changes=("epochs=121", "ramp.end=90")),
        Given(sparse={"method": "feather"}, epochs=3, changes=("sparse.arguments.power=2.0",)),
        Given(data={"name": "imagenet"}, model={"name": "mobilenet_v1"}, seeds={"init": 4}),
    ):
        stored = given.spec()
        assert given.over(stored) == stored


def test_a_model_handed_over_in_python_can_be_resumed_no_further_than_its_name():
    stored = compose().model_copy(update={"model": ModelSpec(name="<Sequential>")})
    assert Given().over(stored) == stored


def test_zero_and_false_are_said_too():
    assert said(seed=0, compile=False, data=None) == {"seed": 0, "compile": False}
