"""Every data set keeps the contract, those of other packages too; a new one is tested as soon as it is registered."""

import pytest
from tests.data.contract import CONTRACT
from tests.data.tiny_files import read_tiny
from tests.scratch import import_scratch_module

from st3.data import DATASETS
from st3.training.sections import SettingsError

every_promise = pytest.mark.parametrize("promise", CONTRACT, ids=lambda promise: promise.__name__)


@every_promise
@pytest.mark.parametrize("name", [*DATASETS])
def test_every_data_set(name, promise, tmp_path, monkeypatch):
    promise(name, read_tiny(name, tmp_path, monkeypatch))


NOISE = """
    import torch

    from st3.data import DATASETS, Splits
    from st3.data.in_memory import InMemory


    @DATASETS.register("noise", model="digits_cnn", recipe="digits", embedded=True)
    def noise(*, shift: int = 1) -> Splits:
        \"\"\"Make 8x8 pictures of noise in two classes.\"\"\"
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(256, (30, 1, 8, 8), dtype=torch.uint8, generator=generator)
        labels = torch.arange(30) % 2
        parts = [
            InMemory(pixels[i::3], labels[i::3], mean=(0.5,), std=(0.29,), shift=shift) for i in range(3)
        ]
        return Splits("noise", *parts, classes=("even", "odd"), shape=(1, 8, 8))
"""


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    def write(source: str = NOISE) -> None:
        import_scratch_module(source, DATASETS, tmp_path, monkeypatch)

    return write


@every_promise
def test_a_data_set_of_another_package(promise, plug_in):
    plug_in()
    promise("noise", DATASETS["noise"]())


@pytest.mark.parametrize(
    ("right", "wrong", "broken"),
    [
        (
            "*, shift: int = 1",
            "shift",
            "it_takes_a_directory_unless_it_is_embedded_and_options_with_defaults",
        ),
        ('Splits("noise"', 'Splits("sound"', "it_has_its_registered_name"),
        (
            'model="digits_cnn"',
            'model="digits_cn"',
            "the_networks_and_recipes_that_it_declares_exist_and_fit",
        ),
        ('recipe="digits"', 'recipe="digit"', "the_networks_and_recipes_that_it_declares_exist_and_fit"),
        (
            "shape=(1, 8, 8)",
            "shape=(3, 8, 8)",
            "a_batch_has_the_stated_shape_and_the_type_of_its_task",
        ),
        ('("even", "odd")', '("all",)', "every_target_names_a_class"),
        ("pixels[i::3]", "pixels[:10]", "no_example_is_in_two_parts"),
        ("shift=shift", "shift=0", "augmenting_is_a_pure_function_of_indices_and_draws"),
    ],
)
def test_a_data_set_that_breaks_a_promise_is_found(right, wrong, broken, plug_in):
    assert NOISE.count(right) == 1
    plug_in(NOISE.replace(right, wrong))
    splits = DATASETS["noise"](shift=1)
    (promise,) = (promise for promise in CONTRACT if promise.__name__ == broken)
    with pytest.raises((AssertionError, LookupError, SettingsError)):
        promise("noise", splits)
