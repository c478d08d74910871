"""From the options of `st3 train` to a spec."""

from dataclasses import replace

import pytest

from st3.cli.spec_options import SpecOptions, keep_given
from st3.experiments.essence import differences
from st3.experiments.spec import ModelSpec, compose
from st3.training.sections import SettingsError


@pytest.mark.parametrize(
    ("given", "describes_a_run"),
    [
        (SpecOptions(), False),
        (SpecOptions(machine={"device": "cpu"}), False),
        (SpecOptions(data={"dir": "/data", "download": True}), False),
        (SpecOptions(changes=("machine.threads=2", "data.dir=/x")), False),
        (SpecOptions(data={"name": "digits"}), True),
        (SpecOptions(epochs=3), True),
        (SpecOptions(seeds={"data": 0}), True),
        (SpecOptions(protocol_options={"dense_twin": False}), True),
        (SpecOptions(changes=("optimizer.lr=1",)), True),
    ],
)
def test_circumstances_alone_do_not_describe_a_run(given, describes_a_run):
    assert given.describes_a_run is describes_a_run


def test_faults_of_all_options_are_reported_at_once():
    given = SpecOptions(
        data={"name": "digit"},
        sparse={"method": "st33", "sparsity": 1.5, "allocation": "globl"},
        epochs=0,
        changes=("lr", "optimizer.lrr=1", "machine.device=cpu"),
    )
    with pytest.raises(SettingsError) as caught:
        given.spec()
    text = "\n".join(caught.value.faults)
    for part in (
        "'lr' is not of the form key=value, such as optimizer.lr=0.05",
        "epochs must be from 1 to 1,000,000,000, got 0",
        "sparse.sparsity",
        "unknown key 'recipe.optimizer.lrr'; did you mean 'lr'?",
        "unknown data set 'digit'; did you mean 'digits'?",
        "unknown method 'st33'; did you mean 'st3'?",
        "unknown allocation 'globl'; did you mean 'global'?",
    ):
        assert part in text


def test_a_stored_spec_takes_new_circumstances():
    stored = compose(data={"name": "cifar10"}, epochs=7, machine={"threads": 2})
    given = SpecOptions(machine={"device": "cpu"}, data={"dir": "/data"}, changes=("machine.workers=3",))
    for options in (given, replace(given, epochs=7, data={"name": "cifar10", "dir": "/data"})):
        spec = options.merge_into(stored)
        assert differences(spec, stored) == []
        assert (spec.machine.device, spec.machine.threads, spec.machine.workers) == ("cpu", 2, 3)
        assert spec.data.dir == "/data"


def test_options_are_merged_into_the_stored_spec_not_into_the_usual_one():
    stored = compose(
        data={"name": "cifar10", "options": {"padding": "edge"}},
        sparse={"method": "feather", "arguments": {"power": 2.0}},
        epochs=7,
        changes={"optimizer.lr": 0.05},
    )
    for given in (
        SpecOptions(sparse={"sparsity": 0.9}),
        SpecOptions(changes=("sparse.arguments.power=2.0",)),
        SpecOptions(changes=("data.options.padding=edge",)),
        SpecOptions(recipe="cifar", changes=("optimizer.lr=0.05",)),
        SpecOptions(epochs=7),
    ):
        assert given.merge_into(stored) == stored
    assert differences(SpecOptions(sparse={"method": "st3"}).merge_into(stored), stored) == [
        "sparse.method.name: 'st3', not 'feather'",
        "sparse.method.arguments.power: None, not 2.0",
    ]


def test_the_complete_command_of_a_run_agrees_with_it():
    for given in (
        SpecOptions(recipe="cifar", changes=("epochs=121", "ramp.end=90")),
        SpecOptions(sparse={"method": "feather"}, epochs=3, changes=("sparse.arguments.power=2.0",)),
        SpecOptions(sparse={"block": 4}),
        SpecOptions(data={"name": "imagenet"}, model={"name": "mobilenet_v1"}, seeds={"init": 4}),
    ):
        stored = given.spec()
        assert given.merge_into(stored) == stored


def test_the_spec_of_a_model_given_in_python_can_be_read_again():
    stored = compose().model_copy(update={"model": ModelSpec(name="<Sequential>")})
    assert SpecOptions().merge_into(stored) == stored


def test_a_run_in_blocks_is_another_run_and_a_dense_one_has_none():
    stored = SpecOptions(sparse={"block": 4}).spec()
    assert differences(stored, compose()) == ["sparse.block: 4, not 1"]
    assert SpecOptions(machine={"threads": 2}).merge_into(stored).sparse.block == 4
    assert SpecOptions(sparse={"method": "dense"}).merge_into(stored).sparse.block == 1


def test_zero_and_false_count_as_given():
    assert keep_given(seed=0, compile=False, data=None) == {"seed": 0, "compile": False}
