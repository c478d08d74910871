"""A wrong spec is refused before anything is trained, with everything that is wrong."""

import pytest

from st3.experiments.build import build_method
from st3.experiments.sparse_choices import choose_ramp
from st3.experiments.spec import compose
from st3.training.sections import SettingsError


def faults(changes=None, **asked):
    with pytest.raises(SettingsError) as caught:
        compose(changes=changes, **asked)
    return list(caught.value.faults)


@pytest.mark.parametrize(
    ("method", "arguments", "fault"),
    [
        ("st3", {"sft": True}, "method 'st3' takes no argument 'sft'; did you mean 'soft'? (known: soft, "),
        (
            "st3",
            {"soft": "maybe"},
            "method 'st3', argument 'soft': input should be a valid boolean, got 'maybe'",
        ),
        ("st3", {"soft": 1}, "method 'st3', argument 'soft': input should be a valid boolean, got 1"),
        (
            "feather",
            {"power": "a"},
            "method 'feather', argument 'power': input should be a valid number, got 'a'",
        ),
        ("feather", {"power": -1}, "method 'feather': power must be above 0, got -1"),
        ("feather", {"theta": 2}, "method 'feather': theta must lie between 0 and 1, got 2"),
        (
            "st3",
            {"rescale": False, "exact_rescale": True},
            "method 'st3': exact_rescale=True has no effect with rescale=False: drop one of the two",
        ),
        ("dense", {"soft": True}, "method 'dense' takes no argument 'soft'"),
    ],
)
def test_arguments_of_the_method_are_checked(method, arguments, fault):
    found = faults(sparse={"method": method, "arguments": arguments})
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_options_of_the_data_and_arguments_of_the_model_are_checked():
    assert faults(
        data={"name": "cifar10", "options": {"padding": "black", "directory": "/x"}},
        model={"name": "wrn34x2", "arguments": {"dropout": "much", "depth": 3}},
        sparse={"arguments": {"foo": 1}},
    ) == [
        "data set 'cifar10' takes no argument 'directory' (known: padding, augment)",
        "data set 'cifar10', argument 'padding': input should be 'zero' or 'edge', got 'black'",
        "model 'wrn34x2' takes no argument 'depth'; did you mean 'dropout'? (known: classes, channels, dropout)",
        "model 'wrn34x2', argument 'dropout': input should be a valid number, got 'much'",
        "method 'st3' takes no argument 'foo' (known: soft, rescale, straight_through, exact_rescale)",
    ]


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("machin.threads", "machine.threads"),
        ("optimiser.lr", "optimizer.lr"),
        ("nesterov", "optimizer.nesterov"),
    ],
)
def test_for_an_unknown_key_the_closest_full_key_is_suggested(key, near):
    (found,) = faults({key: 1})
    assert found.startswith(f"unknown key {key!r}; did you mean {near!r}? (known: data, model, ")


@pytest.mark.parametrize("section", ["data", "model", "sparse", "recipe", "seeds", "machine", "protocol"])
def test_a_value_in_place_of_a_table_is_one_fault_among_others(section):
    found = faults({section: 3, f"{section}.name": 2, "optimizer.lr": "much"})
    assert any(fault.startswith(f"{section}: input should be a valid dictionary") for fault in found)


@pytest.mark.parametrize(
    "key", ["data.name", "model.name", "sparse.method.name", "sparse.ramp.name", "protocol.name"]
)
def test_a_name_that_is_not_a_string_is_a_fault(key):
    assert faults({key: [1]}) == [f"{key}: input should be a valid string, got [1]"]


@pytest.mark.parametrize("key", ["method", "ramp", "allocation"])
def test_a_choice_is_a_name_or_a_table(key):
    fault = f"sparse.{key}: must be a name, or a table with a name and arguments, got [1]"
    assert faults({f"sparse.{key}": [1]}) == [fault]


def test_method_ramp_and_allocation_are_each_a_name_with_arguments():
    changes = {
        "sparse.method.arguments.soft": False,
        "sparse.arguments.rescale": False,  # short for those of the method
        "sparse.ramp": {"name": "linear", "arguments": {"end": 0.8}},
        "sparse.allocation": "sigma",
        "sparse.allocation.arguments.factor": "fan_in",
    }
    spec = compose(changes=changes)
    assert spec.sparse.method.arguments == {"soft": False, "rescale": False}
    assert spec.sparse.ramp.model_dump() == {"name": "linear", "arguments": {"end": 0.8}}
    assert spec.sparse.allocation.model_dump() == {"name": "sigma", "arguments": {"factor": "fan_in"}}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"sparse.allocation": "sigma", "sparse.allocation.arguments.factor": "fan"}, "'sigma', argument 'factor'"),
        ({"sparse.ramp.arguments.strat": 0.1}, "ramp 'cubic' takes no argument 'strat'; did you mean 'start'?"),
        ({"sparse.ramp.arguments.end": 80}, "ramp 'cubic': end is a fraction of the run, from 0 to 1, got 80: divide"),
        ({"sparse.method": "granet", "sparse.arguments.initial_allocation": "erq"}, "unknown allocation 'erq'"),
    ],
)  # fmt: skip
def test_arguments_are_checked_as_the_objects_check_them(changes, fault):
    assert any(fault in found for found in faults(changes))


@pytest.mark.parametrize(
    ("sparse", "changes", "times"),
    [
        ({}, {}, (1 / 30, 18 / 30)),  # the recipe's
        ({"method": "probmask"}, {}, (0.16, 0.6)),  # the method's own
        ({"method": "feather"}, {}, (0.0, 0.5)),
        ({"method": "granet"}, {}, (0.0, 0.5)),
        ({"method": "probmask"}, {"sparse.ramp.arguments.end": 0.4}, (0.16, 0.4)),  # the user's win
        ({}, {"ramp.end": 15}, (1 / 30, 0.5)),
    ],
)
def test_a_methods_own_times_win_over_the_recipes_and_the_users_over_both(sparse, changes, times):
    spec = compose(sparse=sparse, changes=changes)
    ramp = choose_ramp(
        spec.sparse.ramp.name, spec.sparse.ramp.arguments, build_method(spec.sparse), spec.recipe
    )
    assert (ramp.start, ramp.end) == times


def test_usual_values_follow_from_changes_too():
    spec = compose(changes={"data.name": "imagenet", "model.name": "mobilenet_v1"})
    assert (spec.recipe.name, spec.protocol.name) == ("imagenet-mobilenet", "single")
    spec = compose(changes={"sparse.method": "dense"})
    assert spec == compose(sparse={"method": "dense"})


def test_settings_that_contradict_dense_are_refused():
    assert faults({"sparse.method": "dense"}, sparse={"sparsity": 0.9}, protocol="twin") == [
        "method 'dense' with sparsity 0.9: leave one of them out",
        "method 'dense' needs no dense twin",
    ]


def test_a_method_that_implies_its_sparsity_needs_none_and_refuses_any_other():
    spec = compose(sparse={"method": "sr_ste"}, changes={"sparse.arguments.n": 1, "sparse.arguments.m": 8})
    assert (spec.sparse.sparsity, spec.sparse.allocation.name, spec.sparse.ramp.name) == (
        0.875,
        "uniform",
        "constant",
    )
    assert compose(sparse={"method": "s_ste", "sparsity": 0.5}).sparse.sparsity == 0.5
    assert faults(sparse={"method": "s_ste", "sparsity": 0.9}) == [
        "SSTE(n=2, m=4) has a sparsity of 0.5, not 0.9: leave sparsity out, or change the method"
    ]


@pytest.mark.parametrize(
    ("sparse", "fault"),
    [
        ({"method": "rigl", "ramp": "cubic"}, "RigL keeps one sparsity from the first step to the last"),
        ({"method": "rigl", "allocation": "global"}, "RigL begins with random masks"),
        ({"method": "acdc", "ramp": "linear"}, "ACDC brings a ramp of its own"),
        ({"method": "sr_ste", "allocation": "erk"}, "SRSTE keeps n of every m weights in every layer, so"),
        ({"method": "s_ste", "min_weights": 2}, "SSTE keeps n of every m weights in every layer: leave"),
        ({"method": "gmp", "ramp": "phases"}, "GMP never restores what it has pruned"),
        ({"method": "rigl", "block": 4}, "RigL zeroes single weights, so block=4 means nothing to it"),
        (
            {"method": "str", "block": 4},
            "method 'str' learns its thresholds, so that no sparsity can be asked",
        ),
        ({"method": "dense", "block": 4}, "method 'dense' with block 4: leave one of them out"),
        ({"block": 0}, "sparse.block: input should be greater than or equal to 1"),
    ],
)
def test_settings_that_mean_nothing_to_the_method_are_refused(sparse, fault):
    (found,) = faults(sparse=sparse)
    assert found.startswith(fault)


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_these_devices_are_accepted(name):
    assert compose(machine={"device": name}).machine.device == name
