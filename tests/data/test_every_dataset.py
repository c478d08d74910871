"""What every registered data set promises; a new one is tested as soon as it is registered (and has a maker)."""

from inspect import Parameter, signature

import pytest
import torch
from tests.data.tiny_files import MAKERS

from st3.data import DATASETS, Batches, Splits

PARTS = ("train", "validation", "test")


@pytest.fixture(params=DATASETS)
def splits(request: pytest.FixtureRequest, tmp_path, monkeypatch) -> Splits:
    assert request.param in MAKERS, (
        f"write a maker of tiny files for {request.param!r} in tests/data/tiny_files.py"
    )
    directory, options = MAKERS[request.param](tmp_path, monkeypatch)
    return DATASETS[request.param](directory, **options)


def rows(pictures) -> list[bytes]:
    made, _ = pictures.batch(torch.arange(len(pictures)), None)
    return [row.numpy().tobytes() for row in made]


def drawn(pictures, seed: int):
    return pictures.draw(len(pictures), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", [*DATASETS])
def test_it_is_called_with_a_directory_and_options_that_have_defaults(name):
    first, second, *rest = signature(DATASETS[name]).parameters.values()
    assert (first.name, first.default) == ("directory", None)
    assert (second.name, second.default, second.kind) == ("download", False, Parameter.KEYWORD_ONLY)
    assert all(p.kind is Parameter.KEYWORD_ONLY and p.default is not Parameter.empty for p in rest)


@pytest.mark.parametrize("part", PARTS)
def test_a_batch_is_float32_of_the_stated_shape_with_int64_labels(splits, part):
    pictures = getattr(splits, part)
    indices = torch.tensor([1, 0])
    for draws in (None, drawn(pictures, 0)[:2]):
        made, labels = pictures.batch(indices, draws)
        assert made.shape == (2, *splits.shape)
        assert made.dtype == torch.float32
        assert made.isfinite().all()
        assert labels.dtype == torch.int64
        assert labels.tolist() == pictures.labels[indices].tolist()


@pytest.mark.parametrize("part", PARTS)
def test_every_label_names_a_class(splits, part):
    labels = getattr(splits, part).labels
    assert labels.dtype == torch.int64
    assert labels.device.type == "cpu"
    assert len(labels) == len(getattr(splits, part)) > 0
    assert labels.min() >= 0
    assert labels.max() < len(splits.classes)
    assert len(set(splits.classes)) == len(splits.classes)


def test_it_is_registered_under_its_name(splits):
    assert splits.name in DATASETS


def test_no_picture_is_in_two_parts(splits):
    parts = [rows(getattr(splits, part)) for part in PARTS]
    together = [row for part in parts for row in part]
    assert len(set(together)) == len(together)


def test_evaluation_is_the_same_every_time(splits):
    assert rows(splits.train) == rows(splits.train)


def test_augmenting_is_a_pure_function_of_indices_and_draws(splits):
    indices, draws = torch.arange(len(splits.train)), drawn(splits.train, 1)
    before = torch.get_rng_state()
    once, again = (splits.train.batch(indices, draws)[0] for _ in range(2))
    assert torch.equal(once, again)
    assert torch.equal(torch.get_rng_state(), before)
    other = splits.train.batch(indices, drawn(splits.train, 2))[0]
    assert not torch.equal(once, other)


def test_each_row_of_draws_augments_its_own_picture(splits):
    indices, draws = torch.tensor([3, 0, 2]), drawn(splits.train, 1)[:3]
    together = splits.train.batch(indices, draws)[0]
    alone = [splits.train.batch(indices[[i]], draws[[i]])[0] for i in range(3)]
    assert torch.equal(together, torch.cat(alone))


def test_draws_come_from_the_generator_alone_one_row_per_picture(splits):
    before = torch.get_rng_state()
    assert torch.equal(drawn(splits.train, 5), drawn(splits.train, 5))
    assert len(drawn(splits.train, 5)) == len(splits.train)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_empty_batch_has_the_shape_too(splits):
    none = torch.empty(0, dtype=torch.int64)
    for draws in (None, drawn(splits.train, 0)[:0]):
        made, labels = splits.train.batch(none, draws)
        assert made.shape == (0, *splits.shape)
        assert labels.shape == (0,)


def test_batches_show_every_picture_once_in_an_epoch(splits):
    shown = torch.cat([labels for _, labels in Batches(splits.train, 3, seed=0).epoch()])
    assert shown.sort().values.tolist() == splits.train.labels.sort().values.tolist()


def test_moving_to_where_it_is_changes_nothing(splits):
    assert rows(splits.test.to("cpu")) == rows(splits.test)
