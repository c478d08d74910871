"""A spec takes what a data set declares: its network, its recipe, whether it needs files."""

import pytest
from tests.scratch import import_scratch_module

from st3.data import DATASETS
from st3.experiments.build import build_splits
from st3.experiments.spec import DataSpec, compose
from st3.training.sections import SettingsError

NOISE = """
    import torch

    from st3.data import DATASETS, Splits
    from st3.data.in_memory import InMemory


    @DATASETS.register("noise"{declarations})
    def noise({parameters}) -> Splits:
        pixels = torch.randint(256, (30, 1, 8, 8), dtype=torch.uint8)
        parts = [InMemory(pixels, torch.arange(30) % 2, mean=(0.5,), std=(0.29,), shift=shift)] * 3
        return Splits("noise", *parts, classes=("even", "odd"), shape=(1, 8, 8))
"""
EMBEDDED = "*, shift: int = 1"
FROM_FILES = "directory=None, *, download=False, shift: int = 1"


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """Register a data set `noise` from another package, with these declarations."""

    def register(parameters: str = EMBEDDED, **declarations: object) -> None:
        text = "".join(f", {key}={value!r}" for key, value in declarations.items())
        source = NOISE.format(declarations=text, parameters=parameters)
        import_scratch_module(source, DATASETS, tmp_path, monkeypatch)

    return register


def faults(**given) -> list[str]:
    with pytest.raises(SettingsError) as error:
        compose(data={"name": "noise", **given.pop("data", {})}, **given)
    return list(error.value.faults)


def test_network_recipe_and_dense_twin_are_those_that_the_data_set_declares(plug_in):
    plug_in(model="vgg11", recipe="digits", embedded=True, dense_twin=True)
    spec = compose(data={"name": "noise"})
    assert (spec.model.name, spec.recipe.name, spec.protocol.name) == ("vgg11", "digits", "twin")


def test_a_network_may_have_a_recipe_for_itself(plug_in):
    plug_in(model="vgg11", recipe="cifar", recipes={"vgg19": "imagenet"}, embedded=True)
    names = {
        name: compose(data={"name": "noise"}, model={"name": name}).recipe.name for name in ("vgg11", "vgg19")
    }
    assert names == {"vgg11": "cifar", "vgg19": "imagenet"}


@pytest.mark.parametrize(
    ("declared", "given", "fault"),
    [
        ({}, {}, "declares no network and no recipe: add --model NAME and --recipe NAME"),
        ({"model": "vgg11"}, {}, "declares no recipe: add --recipe NAME"),
        ({"recipe": "digits"}, {}, "declares no network: add --model NAME"),
        ({}, {"recipe": "digits"}, "declares no network: add --model NAME"),
        ({}, {"model": {"name": "vgg11"}}, "declares no recipe: add --recipe NAME"),
    ],
)
def test_what_neither_the_data_set_nor_the_user_names_is_asked_for(declared, given, fault, plug_in):
    plug_in(**declared)
    assert faults(**given) == [f"data set 'noise' {fault}"]
    spec = compose(data={"name": "noise"}, model={"name": "vgg11"}, recipe="digits")
    assert (spec.model.name, spec.recipe.name) == ("vgg11", "digits")


def test_other_faults_are_told_together_with_a_missing_declaration(plug_in):
    plug_in(embedded=True)
    found = faults(data={"dir": "/data"}, sparse={"method": "st33"}, recipe="none")
    assert [fault.partition(";")[0].partition(":")[0] for fault in found] == [
        "data set 'noise' declares no network",
        "unknown recipe 'none'",
        "data set 'noise' needs no files",
        "unknown method 'st33'",
    ]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"dir": "/data"}, "--data-dir"),
        ({"download": True}, "--download"),
        ({"dir": "/data", "download": True}, "--data-dir and --download"),
    ],
)
def test_files_given_to_an_embedded_data_set_are_refused(given, options, plug_in):
    plug_in(model="vgg11", recipe="digits", embedded=True)
    others = "cifar10, cifar100, fashion_mnist, folder, imagenet, text"
    fault = f"data set 'noise' needs no files: leave out {options}, or name another --data ({others})"
    assert faults(data=given) == [fault]
    with pytest.raises(SettingsError, match="data set 'noise' needs no files: leave out --data-dir"):
        build_splits(DataSpec(name="noise", dir="/data"))


@pytest.mark.parametrize(("embedded", "parameters"), [(True, EMBEDDED), (False, FROM_FILES)])
def test_a_data_set_is_read_with_its_options(embedded, parameters, plug_in):
    plug_in(parameters, embedded=embedded)
    assert build_splits(DataSpec(name="noise", options={"shift": 2})).train.shift == 2
