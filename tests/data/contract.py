"""What every data set promises. Each function takes a registered name and its splits, and fails if it is not kept."""

from collections.abc import Callable
from inspect import Parameter, signature

import torch

from st3.data import DATASETS, Batches, Pictures, Splits
from st3.models import MODELS
from st3.training.recipe import load_recipe

__all__ = ["CONTRACT"]

Promise = Callable[[str, Splits], None]
CONTRACT: list[Promise] = []


def promise(check: Promise) -> Promise:
    CONTRACT.append(check)
    return check


def parts(splits: Splits) -> tuple[Pictures, ...]:
    return splits.train, splits.validation, splits.test


def rows(pictures: Pictures) -> list[bytes]:
    """Return every picture as evaluation sees it, as bytes."""
    made, _ = pictures.batch(torch.arange(len(pictures)), None)
    return [row.numpy().tobytes() for row in made]


def draw(pictures: Pictures, seed: int) -> torch.Tensor:
    return pictures.draw(len(pictures), torch.Generator().manual_seed(seed))


@promise
def it_takes_a_directory_unless_it_is_embedded_and_options_with_defaults(name: str, splits: Splits) -> None:
    options = [*signature(DATASETS[name]).parameters.values()]
    if not DATASETS.declaration(name).embedded:
        directory, download, *options = options
        assert (directory.name, directory.default) == ("directory", None)
        assert (download.name, download.default, download.kind) == ("download", False, Parameter.KEYWORD_ONLY)
    assert all(p.kind is Parameter.KEYWORD_ONLY and p.default is not Parameter.empty for p in options)
    assert not {"directory", "download"} & {p.name for p in options}


@promise
def it_has_its_registered_name(name: str, splits: Splits) -> None:
    assert splits.name == name


@promise
def the_networks_and_recipes_that_it_declares_exist_and_fit(name: str, splits: Splits) -> None:
    declared = DATASETS.declaration(name)
    for recipe in (declared.recipe, *declared.recipes.values()):
        assert recipe is None or load_recipe(recipe)
    for model in (declared.model, *declared.recipes):
        if model is not None:
            with torch.device("meta"):
                network = MODELS[model](classes=len(splits.classes), channels=splits.shape[0])
                assert network(torch.empty(2, *splits.shape)).shape == (2, len(splits.classes))


@promise
def a_batch_is_float32_of_the_stated_shape_with_int64_labels(name: str, splits: Splits) -> None:
    indices = torch.tensor([1, 0])
    for pictures in parts(splits):
        for draws in (None, draw(pictures, 0)[:2]):
            made, labels = pictures.batch(indices, draws)
            assert made.shape == (2, *splits.shape)
            assert made.dtype == torch.float32
            assert made.isfinite().all()
            assert labels.dtype == torch.int64
            assert labels.tolist() == pictures.labels[indices].tolist()


@promise
def every_label_names_a_class(name: str, splits: Splits) -> None:
    assert len(set(splits.classes)) == len(splits.classes)
    for pictures in parts(splits):
        assert pictures.labels.dtype == torch.int64
        assert pictures.labels.device.type == "cpu"
        assert len(pictures.labels) == len(pictures) > 0
        assert pictures.labels.min() >= 0
        assert pictures.labels.max() < len(splits.classes)


@promise
def no_picture_is_in_two_parts(name: str, splits: Splits) -> None:
    every = [row for pictures in parts(splits) for row in rows(pictures)]
    assert len(set(every)) == len(every)


@promise
def evaluation_is_the_same_every_time(name: str, splits: Splits) -> None:
    assert rows(splits.train) == rows(splits.train)


@promise
def augmenting_is_a_pure_function_of_indices_and_draws(name: str, splits: Splits) -> None:
    indices, draws = torch.arange(len(splits.train)), draw(splits.train, 1)
    before = torch.get_rng_state()
    once, again = (splits.train.batch(indices, draws)[0] for _ in range(2))
    assert torch.equal(once, again)
    assert torch.equal(torch.get_rng_state(), before)
    other = splits.train.batch(indices, draw(splits.train, 2))[0]
    assert not torch.equal(once, other)


@promise
def each_row_of_draws_augments_one_picture(name: str, splits: Splits) -> None:
    indices, draws = torch.tensor([3, 0, 2]), draw(splits.train, 1)[:3]
    together = splits.train.batch(indices, draws)[0]
    alone = [splits.train.batch(indices[[i]], draws[[i]])[0] for i in range(3)]
    assert torch.equal(together, torch.cat(alone))


@promise
def draws_come_from_the_generator_alone_one_row_per_picture(name: str, splits: Splits) -> None:
    before = torch.get_rng_state()
    assert torch.equal(draw(splits.train, 5), draw(splits.train, 5))
    assert len(draw(splits.train, 5)) == len(splits.train)
    assert torch.equal(torch.get_rng_state(), before)


@promise
def an_empty_batch_has_the_same_shape(name: str, splits: Splits) -> None:
    for draws in (None, draw(splits.train, 0)[:0]):
        made, labels = splits.train.batch(torch.empty(0, dtype=torch.int64), draws)
        assert made.shape == (0, *splits.shape)
        assert labels.shape == (0,)


@promise
def an_epoch_shows_every_picture_once(name: str, splits: Splits) -> None:
    shown = torch.cat([labels for _, labels in Batches(splits.train, 3, seed=0).epoch()])
    assert shown.sort().values.tolist() == splits.train.labels.sort().values.tolist()


@promise
def moving_to_the_same_device_changes_nothing(name: str, splits: Splits) -> None:
    assert rows(splits.test.to("cpu")) == rows(splits.test)
