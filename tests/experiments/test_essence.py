"""What makes two specs the same run: everything that determines the result, nothing else."""

import pytest

from st3.experiments.essence import _section_defaults, differences, essence, is_circumstance
from st3.experiments.spec import ModelSpec, Spec, compose

CIRCUMSTANCES = {
    "machine.device": "cpu",
    "machine.precision": "bfloat16",
    "machine.threads": 3,
    "machine.workers": 2,
    "machine.compile": True,
    "recipe.name": "renamed",
}
DETERMINING = {
    "data.options.augment": False,
    "model.name": "resnet20",
    "sparse.method.name": "feather",
    "sparse.method.arguments.rescale": False,
    "sparse.sparsity": 0.8,
    "sparse.allocation.name": "sigma",
    "sparse.ramp.name": "linear",
    "sparse.block": 4,
    "sparse.exclude": ["fc*"],
    "sparse.min_weights": 1,
    "recipe.epochs": 31,
    "recipe.batch_size": 32,
    "recipe.clip_norm": None,
    "recipe.optimizer.lr": 0.2,
    "recipe.optimizer.nesterov": True,
    "recipe.rate.kind": "constant",
    "recipe.rate.warmup": 1.0,
    "recipe.ramp.end": 17.0,
    "seeds.init": 1,
    "seeds.data": 1,
    "protocol.name": "single",
}


@pytest.mark.parametrize("key", CIRCUMSTANCES)
def test_circumstances_do_not_make_it_another_run(key):
    other = compose(changes={key: CIRCUMSTANCES[key]})
    assert other != compose()
    assert essence(other) == essence(compose())
    assert differences(other, compose()) == []
    assert is_circumstance(key)


@pytest.mark.parametrize("key", DETERMINING)
def test_every_setting_that_changes_the_result_makes_it_another_run(key):
    value = DETERMINING[key]
    other = compose(changes={key: value})
    assert essence(other) != essence(compose())
    assert any(text.startswith(f"{key}: {value!r}, not ") for text in differences(other, compose()))
    assert not is_circumstance(key)


def test_the_folder_of_the_data_is_a_circumstance_and_their_name_is_not():
    cifar = compose(data={"name": "cifar10"})
    elsewhere = compose(data={"name": "cifar10", "dir": "/data", "download": True})
    assert essence(elsewhere) == essence(cifar)
    assert essence(compose(data={"name": "cifar100"})) != essence(cifar)


@pytest.mark.parametrize(
    "changes",
    [
        {"sparse.arguments.soft": True},
        {"data.options.augment": True},
        {"model.arguments.classes": 10},
        {"sparse.exclude": []},
        {"optimizer.nesterov": False},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_giving_a_usual_value_explicitly_does_not_make_it_another_run(changes):
    assert essence(compose(changes=changes)) == essence(compose())
    assert differences(compose(changes=changes), compose()) == []


def test_both_values_are_shown_even_if_one_is_usual():
    assert differences(compose(), compose(changes={"optimizer.momentum": 0.5})) == [
        "recipe.optimizer.momentum: 0.9, not 0.5"
    ]


def test_two_kinds_of_rate_differ_even_if_all_their_settings_are_usual():
    constant, cosine = (
        compose(changes={"rate.kind": kind, "rate.by_step": False}) for kind in ("constant", "cosine")
    )
    assert differences(constant, cosine) == ["recipe.rate.kind: 'constant', not 'cosine'"]


def test_arguments_of_code_that_is_not_in_the_catalogue_are_kept_as_given():
    own = compose().model_copy(update={"model": ModelSpec(name="my_nets:tiny", arguments={"width": 8})})
    assert essence(own)["model.arguments.width"] == 8


def test_a_setting_that_is_added_later_leaves_older_identities_as_they_are():
    class LaterSpec(Spec):
        mixup: float = 0.0

    stored = compose().model_dump()
    assert essence(LaterSpec(**stored)) == essence(compose())
    assert essence(LaterSpec(**stored, mixup=0.2))["mixup"] == 0.2


def test_the_essence_of_the_usual_run_is_pinned():
    """A failure means that identities of existing runs change: add settings whose usual value changes nothing."""
    assert essence(compose()) == {
        "model.name": "digits_cnn",
        "recipe.epochs": 30,
        "recipe.batch_size": 64,
        "recipe.clip_norm": 3.0,
        "recipe.optimizer.lr": 0.1,
        "recipe.optimizer.weight_decay": 0.0001,
        "recipe.rate.by_step": True,
        "recipe.rate.kind": "cosine",
        "recipe.ramp.start": 1.0,
        "recipe.ramp.end": 18.0,
        "protocol.name": "twin",
    }


def test_the_usual_values_are_pinned():
    """A failure means that the identity of existing runs stands for something else: do not change usual values."""
    assert _section_defaults(compose(recipe="cifar")) == {
        "data.name": "digits",
        "data.dir": None,
        "data.download": False,
        "data.options": {},
        "model.arguments": {},
        "sparse.method.name": "st3",
        "sparse.method.arguments": {},
        "sparse.sparsity": 0.9,
        "sparse.allocation.name": "global",
        "sparse.allocation.arguments": {},
        "sparse.ramp.name": "cubic",
        "sparse.ramp.arguments": {},
        "sparse.block": 1,
        "sparse.exclude": [],
        "sparse.min_weights": 0,
        "recipe.name": "own",
        "recipe.clip_norm": None,
        "recipe.gradient_rms": None,
        "recipe.label_smoothing": 0.0,
        "recipe.optimizer.name": "sgd",
        "recipe.optimizer.momentum": 0.9,
        "recipe.optimizer.nesterov": False,
        "recipe.optimizer.beta2": 0.999,
        "recipe.optimizer.epsilon": 1e-8,
        "recipe.optimizer.weight_decay": 0.0,
        "recipe.optimizer.weight_decay_from": [],
        "recipe.rate.warmup": 0.0,
        "recipe.rate.by_density": False,
        "recipe.rate.by_step": False,
        "recipe.rate.kind": "step",
        "recipe.rate.factor_of_drop": 0.1,
        "recipe.ramp.start": 0.0,
        "recipe.freeze_epochs": 0,
        "recipe.rewind": False,
        "seeds.init": 0,
        "seeds.data": 0,
        "machine.device": "auto",
        "machine.precision": "float32",
        "machine.channels_last": True,
        "machine.compile": False,
        "machine.deterministic": False,
        "machine.sharded": False,
        "machine.workers": 0,
        "machine.threads": None,
        "record.switch_windows": 0,
        "protocol.name": "single",
        "protocol.arguments": {},
        "part": None,
    }
