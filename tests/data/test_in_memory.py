"""Crops, mirrored pictures and normalised bytes, worked out by hand."""

import pytest
import torch

from st3.data.in_memory import InMemory

ONE = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
FIRST = torch.tensor([0])


def pictures(pixels=ONE, **settings):
    plain = {"mean": (0.0,) * pixels.shape[1], "std": (1.0,) * pixels.shape[1], "largest": 1}
    return InMemory(pixels, torch.arange(len(pixels)), **(plain | settings))


def made(of, *draws):
    return of.batch(torch.arange(len(draws)), torch.tensor(draws))[0]


@pytest.mark.parametrize(
    ("down", "right", "zero", "edge"),
    [
        (0, 0, [[0, 0], [0, 1]], [[1, 1], [1, 1]]),
        (0, 1, [[0, 0], [1, 2]], [[1, 2], [1, 2]]),
        (1, 1, [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (2, 1, [[3, 4], [0, 0]], [[3, 4], [3, 4]]),
        (1, 2, [[2, 0], [4, 0]], [[2, 2], [4, 4]]),
        (2, 2, [[4, 0], [0, 0]], [[4, 4], [4, 4]]),
    ],
)
def test_a_crop_at_a_known_offset(down, right, zero, edge):
    assert made(pictures(shift=1), (down, right, 0)).tolist() == [[zero]]
    assert made(pictures(shift=1, padding="edge"), (down, right, 0)).tolist() == [[edge]]


def test_a_picture_is_cropped_before_it_is_mirrored():
    assert made(pictures(shift=1, flip=True), (1, 2, 1)).tolist() == [[[[0, 2], [0, 4]]]]


def test_every_picture_and_channel_is_cropped_at_its_own_offset():
    pixels = torch.arange(1, 13, dtype=torch.uint8).view(2, 2, 1, 3)  # rows 1 2 3, 4 5 6 and 7 8 9, 10 11 12
    both = made(pictures(pixels, shift=1, flip=True), (1, 0, 0), (1, 2, 1))
    assert both.tolist() == [[[[0, 1, 2]], [[0, 4, 5]]], [[[0, 9, 8]], [[0, 12, 11]]]]


def test_bytes_are_normalised_channel_by_channel():
    pixels = torch.tensor([0, 51, 255, 102], dtype=torch.uint8).view(1, 2, 1, 2)
    of = pictures(pixels, mean=(0.2, 0.4), std=(0.5, 0.25), largest=255)
    expected = torch.tensor([[[[-0.4, 0.0]], [[2.4, 0.0]]]])
    torch.testing.assert_close(of.batch(FIRST, None)[0], expected)


def test_padding_is_black_before_normalisation():
    of = pictures(shift=1, mean=(0.5,), std=(2.0,))
    assert made(of, (0, 0, 0)).tolist() == [[[[-0.25, -0.25], [-0.25, 0.25]]]]


def test_without_draws_the_picture_is_unchanged():
    assert pictures(shift=1, flip=True).batch(FIRST, None)[0].tolist() == ONE.tolist()


def test_draws_are_uniform_over_offsets_and_mirroring():
    draws = pictures(shift=4, flip=True).draw(18_000, torch.Generator().manual_seed(0))
    assert draws.shape == (18_000, 3)
    for column, values in ((0, 9), (1, 9), (2, 2)):
        counts = draws[:, column].bincount()
        assert len(counts) == values
        assert (counts - 18_000 / values).abs().max() < 5 * (18_000 / values) ** 0.5


def test_without_augmentation_all_draws_are_zero():
    of = pictures()
    assert of.draw(5, torch.Generator().manual_seed(0)).unique().tolist() == [0]
    assert made(of, (0, 0, 0)).tolist() == ONE.tolist()


def test_a_batch_does_not_share_memory_with_the_pixels():
    of = pictures(pixels=ONE.clone(), mean=(3.0,))
    of.batch(FIRST, None)[0].zero_()
    assert torch.equal(of.pixels, ONE)


def test_moved_pictures_keep_their_labels_on_the_cpu_and_know_their_device():
    moved = pictures(shift=1).to("meta")
    assert moved.device.type == "meta"
    assert moved.labels.device.type == "cpu"
    made, labels = moved.batch(torch.empty(3, dtype=torch.int64), None)
    assert (made.device.type, made.shape, labels.device.type) == ("meta", (3, 1, 2, 2), "meta")


def test_an_unknown_padding_is_refused():
    with pytest.raises(ValueError) as error:
        pictures(padding="mirror")
    assert str(error.value) == "padding must be 'zero' or 'edge', got 'mirror'"
