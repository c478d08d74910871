"""Batches depend on the seed alone: not on workers, ranks, interruptions, or what else draws random numbers."""

import pytest
import torch

from st3.data import Batches, DataError, Pictures
from st3.data.in_memory import InMemory
from st3.data.seeds import generator_for

# Python 3.12 and later warn about the fork by which a loader starts its workers.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Numbers(Pictures):
    """Picture i is the number i, and its augmentation adds a fraction."""

    def __init__(self, count: int, broken: int = -1) -> None:
        self.labels = torch.arange(count)
        self.broken = broken

    def draw(self, count, generator):
        return torch.rand(count, generator=generator)

    def batch(self, indices, draws):
        if self.broken in indices.tolist():
            raise DataError(f"picture {self.broken} is damaged")
        shown = indices.float() if draws is None else indices + draws
        return shown.view(-1, 1, 1, 1), self.labels[indices]


def noise(count: int) -> InMemory:
    pixels = torch.randint(
        256, (count, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return InMemory(pixels, torch.arange(count), mean=(0.5,) * 3, std=(0.5,) * 3, shift=2, flip=True)


def shown(batches, epoch=0, first=0) -> list[list[float]]:
    return [pictures.flatten().tolist() for pictures, _ in batches.epoch(epoch, first)]


def same(one, other) -> bool:
    return all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(one, other, strict=True))


def test_for_evaluation_pictures_come_in_order_and_unchanged():
    batches = Batches(Numbers(5), 2, seed=None)
    assert shown(batches) == shown(batches, epoch=3) == [[0, 1], [2, 3], [4]]


def test_the_last_batch_is_kept_however_small():
    batches = Batches(Numbers(7), 3, seed=0)
    assert len(batches) == 3
    assert [batches.size(number) for number in range(3)] == [3, 3, 1]
    assert [len(batch) for batch in shown(batches)] == [3, 3, 1]


def test_every_epoch_shows_every_picture_once_in_a_new_order():
    batches = Batches(Numbers(50), 8, seed=4)
    orders = [[int(number) for batch in shown(batches, epoch) for number in batch] for epoch in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_pictures_and_labels_belong_together():
    for pictures, labels in Batches(Numbers(20), 6, seed=1).epoch():
        assert pictures.flatten().floor().tolist() == labels.tolist()


def test_every_batch_epoch_and_seed_has_different_random_numbers():
    fractions = set()
    for seed in range(3):
        for epoch in range(3):
            for batch in shown(Batches(Numbers(6), 2, seed=seed), epoch):
                fractions.update(round(number % 1, 5) for number in batch)
    assert len(fractions) == 3 * 3 * 6


def test_an_epoch_can_be_repeated_and_begun_at_any_batch():
    batches = Batches(Numbers(11), 2, seed=9)
    whole = shown(batches, epoch=2)
    assert shown(batches, epoch=2) == whole
    for first in range(len(batches) + 1):
        assert shown(batches, epoch=2, first=first) == whole[first:]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_shares_of_all_ranks_make_up_the_batch(ranks):
    whole = shown(Batches(Numbers(11), 4, seed=3), epoch=1)
    shares = [shown(Batches(Numbers(11), 4, seed=3, rank=r, ranks=ranks), epoch=1) for r in range(ranks)]
    for number, batch in enumerate(whole):
        parts = [share[number] for share in shares]
        assert [number for part in parts for number in part] == batch
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_share_may_be_empty_and_keeps_its_shape():
    batches = Batches(noise(5), 4, seed=0, rank=0, ranks=2)
    assert [tuple(pictures.shape) for pictures, _ in batches.epoch()] == [(2, 3, 8, 8), (0, 3, 8, 8)]


def test_the_size_of_a_batch_counts_all_ranks():
    assert Batches(Numbers(11), 4, seed=3, rank=1, ranks=2).size(2) == 3


@pytest.mark.parametrize("make", [Numbers, noise], ids=["numbers", "in memory"])
@pytest.mark.parametrize("seed", [None, 0])
def test_workers_make_the_same_batches(make, seed):
    alone = list(Batches(make(23), 4, seed=seed).epoch(1, first=1))
    assert same(alone, Batches(make(23), 4, seed=seed, workers=2).epoch(1, first=1))
    share = {"rank": 1, "ranks": 2}
    half = list(Batches(make(23), 4, seed=seed, **share).epoch())
    assert same(half, Batches(make(23), 4, seed=seed, workers=2, **share).epoch())


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_global_random_numbers_are_left_alone(workers):
    before = torch.get_rng_state()
    list(Batches(noise(8), 4, seed=0, workers=workers).epoch())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    other = list(Batches(noise(8), 4, seed=0, workers=workers).epoch())
    torch.manual_seed(6)
    assert same(other, Batches(noise(8), 4, seed=0, workers=workers).epoch())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_picture_is_one_sentence_without_a_stack_trace(workers):
    batches = Batches(Numbers(6, broken=3), 2, seed=None, workers=workers).epoch()
    assert next(batches)[1].tolist() == [0, 1]
    with pytest.raises(DataError) as error:
        next(batches)
    assert str(error.value) == "picture 3 is damaged"


def test_an_epoch_with_workers_may_be_left_early():
    batches = Batches(noise(40), 4, seed=0, workers=2)
    assert len(next(batches.epoch())[1]) == 4
    assert len(list(batches.epoch())) == 10


def test_pictures_held_on_the_device_are_made_there_without_workers_or_copies():
    held = noise(6).to("meta")
    batches = Batches(held, 4, seed=0, workers=2, device="meta")
    assert batches.workers == 0
    assert [pictures.device.type for pictures, _ in batches.epoch()] == ["meta", "meta"]
    on_cpu = Batches(noise(6), 6, seed=None, device="cpu")
    made = []
    on_cpu.examples.batch = lambda indices, draws: made.append(torch.zeros(1)) or (made[-1], made[-1])
    assert next(on_cpu.epoch())[0] is made[0]


def test_without_pictures_there_are_no_batches():
    assert len(Batches(Numbers(0), 4, seed=0)) == 0
    assert shown(Batches(Numbers(0), 4, seed=0)) == []


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"rank": 2, "ranks": 2}, "rank must be at least 0 and below the 2 ranks, got 2"),
        ({"seed": -1}, "seed must be at least 0 (or None for evaluation), got -1"),
        ({"workers": -1}, "workers must be at least 0, got -1"),
    ],
)
def test_impossible_settings_are_refused(settings, complaint):
    with pytest.raises(ValueError) as error:
        Batches(Numbers(4), **({"batch_size": 2, "seed": 0} | settings))
    assert str(error.value) == complaint


def test_a_batch_beyond_the_epoch_is_refused():
    batches = Batches(Numbers(4), 2, seed=0)
    with pytest.raises(ValueError, match="first must be from 0 to the 2 batches of an epoch, got 3"):
        next(batches.epoch(first=3))
    with pytest.raises(IndexError, match="there is no batch 2 in an epoch of 2 batches"):
        batches.size(2)


def test_nearby_places_and_seeds_have_unrelated_generators():
    places = [(), (0,), (0, 0), (1,), (0, 1), (1, 0), (1, 1)]
    seeds = [0, 1, 2**32, 2**32 + 1, 2**64 - 1]
    states = {generator_for(seed, *where).initial_seed() for seed in seeds for where in places}
    assert len(states) == len(places) * len(seeds)


def test_the_generator_of_a_place_never_changes():
    """Otherwise a later version could not resume or repeat a run."""
    assert generator_for(0, 1, 2).initial_seed() == 9247832928889101276
