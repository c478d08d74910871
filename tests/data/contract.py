"""What every data set promises. Each function takes a registered name and its splits, and fails if it is not kept."""

from collections.abc import Callable
from inspect import Parameter, signature

import torch

from st3.data import DATASETS, Batches, Examples, Pictures, Splits
from st3.models import MODELS
from st3.training.recipe import load_recipe
from st3.training.tasks import TASKS, Task

__all__ = ["CONTRACT"]

Promise = Callable[[str, Splits], None]
CONTRACT: list[Promise] = []


def promise(check: Promise) -> Promise:
    CONTRACT.append(check)
    return check


def parts(splits: Splits) -> tuple[Examples, ...]:
    return splits.train, splits.validation, splits.test


def task_of(splits: Splits) -> Task:
    return TASKS[splits.task]


def rows(examples: Examples) -> list[bytes]:
    """Return every input as evaluation sees it, as bytes."""
    made, _ = examples.batch(torch.arange(len(examples)), None)
    return [row.numpy().tobytes() for row in made]


def all_targets(examples: Examples) -> torch.Tensor:
    return examples.batch(torch.arange(len(examples)), None)[1]


def draw(examples: Examples, seed: int) -> torch.Tensor:
    return examples.draw(len(examples), torch.Generator().manual_seed(seed))


class Unmoved(Examples):
    """The same examples, never augmented."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return self.examples.draw(count, generator)

    def batch(self, indices: torch.Tensor, draws: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        return self.examples.batch(indices, None)


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
            task, classes = task_of(splits), len(splits.classes)
            with torch.device("meta"):
                network = MODELS[model](**task.sizes(classes, splits.shape))
                scores = network(task.blank(2, splits.shape))
            assert scores.shape == task.output_shape(2, splits.shape, classes)


@promise
def a_batch_has_the_stated_shape_and_the_type_of_its_task(name: str, splits: Splits) -> None:
    indices, task = torch.tensor([1, 0]), task_of(splits)
    for examples in parts(splits):
        for draws in (None, draw(examples, 0)[:2]):
            made, targets = examples.batch(indices, draws)
            assert made.shape == (2, *splits.shape)
            assert made.dtype == task.dtype
            assert made.isfinite().all()
            assert targets.dtype == torch.int64
            assert targets.shape == task.output_shape(2, splits.shape, len(splits.classes))[:-1]


@promise
def every_target_names_a_class(name: str, splits: Splits) -> None:
    assert len(set(splits.classes)) == len(splits.classes)
    for examples in parts(splits):
        assert len(examples) > 0
        assert all_targets(examples).min() >= 0
        assert all_targets(examples).max() < len(splits.classes)


@promise
def pictures_have_the_labels_of_their_batches_on_the_cpu(name: str, splits: Splits) -> None:
    for examples in parts(splits):
        if isinstance(examples, Pictures):
            assert (examples.labels.dtype, examples.labels.device.type) == (torch.int64, "cpu")
            assert torch.equal(examples.labels, all_targets(examples))
            moved = examples.batch(torch.tensor([1, 0]), draw(examples, 0)[:2])[1]
            assert torch.equal(moved, examples.labels[[1, 0]])


@promise
def no_example_is_in_two_parts(name: str, splits: Splits) -> None:
    every = [row for examples in parts(splits) for row in rows(examples)]
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
def each_row_of_draws_augments_one_example(name: str, splits: Splits) -> None:
    indices, draws = torch.tensor([3, 0, 2]), draw(splits.train, 1)[:3]
    together = splits.train.batch(indices, draws)[0]
    alone = [splits.train.batch(indices[[i]], draws[[i]])[0] for i in range(3)]
    assert torch.equal(together, torch.cat(alone))


@promise
def draws_come_from_the_generator_alone_one_row_per_example(name: str, splits: Splits) -> None:
    before = torch.get_rng_state()
    assert torch.equal(draw(splits.train, 5), draw(splits.train, 5))
    assert len(draw(splits.train, 5)) == len(splits.train)
    assert torch.equal(torch.get_rng_state(), before)


@promise
def an_empty_batch_has_the_same_shape(name: str, splits: Splits) -> None:
    for draws in (None, draw(splits.train, 0)[:0]):
        made, targets = splits.train.batch(torch.empty(0, dtype=torch.int64), draws)
        assert made.shape == (0, *splits.shape)
        assert targets.shape == task_of(splits).output_shape(0, splits.shape, len(splits.classes))[:-1]


@promise
def an_epoch_shows_every_example_once(name: str, splits: Splits) -> None:
    batches = Batches(Unmoved(splits.train), 3, seed=0)
    shown = [row.numpy().tobytes() for inputs, _ in batches.epoch() for row in inputs]
    assert sorted(shown) == sorted(rows(splits.train))


@promise
def moving_to_the_same_device_changes_nothing(name: str, splits: Splits) -> None:
    assert rows(splits.test.to("cpu")) == rows(splits.test)
