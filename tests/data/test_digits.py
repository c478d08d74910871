"""The digits that come with the package."""

import pytest
import torch

from st3.data import DataError
from st3.data import digits as module
from st3.data.digits import digits


def everything(pictures):
    return pictures.batch(torch.arange(len(pictures)), None)


def test_1797_digits_are_split_into_1197_and_200_and_400():
    splits = digits()
    assert [len(p) for p in (splits.train, splits.validation, splits.test)] == [1197, 200, 400]
    assert splits.classes == tuple("0123456789")
    assert splits.shape == (1, 8, 8)


def test_every_class_has_its_share_of_each_part():
    splits = digits()
    parts = [p.labels.bincount(minlength=10) for p in (splits.train, splits.validation, splits.test)]
    total = sum(parts)
    # As published for the whole set.
    assert total.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    for counts in parts:
        assert (counts - total * counts.sum() / 1797).abs().max() <= 1


def test_training_pictures_have_mean_0_and_standard_deviation_1():
    pictures, _ = everything(digits().train)
    assert abs(pictures.mean()) < 1e-4
    assert abs(pictures.std() - 1) < 1e-4


def test_the_first_picture_of_the_published_set_is_a_zero():
    splits = digits()
    top = torch.tensor([[0, 0, 5, 13, 9, 1, 0, 0], [0, 0, 13, 15, 10, 15, 5, 0]])
    parts = (splits.train, splits.validation, splits.test)
    found = [part.labels[(part.pixels[:, 0, :2] == top).all(dim=(1, 2))] for part in parts]
    assert torch.cat(found).tolist() == [0]


def test_a_shift_moves_the_digit_by_one_pixel_and_fills_with_background():
    train = digits().train
    plain = train.batch(torch.tensor([0]), None)[0]
    moved = train.batch(torch.tensor([0]), torch.tensor([[0, 2, 0]]))[0]  # down by one and left by one
    assert torch.equal(moved[..., 1:, :-1], plain[..., :-1, 1:])
    background = torch.tensor(-0.30515 / 0.37637)
    assert torch.allclose(moved[..., 0, :], background)
    assert torch.allclose(moved[..., :, -1], background)


def test_digits_are_shifted_but_never_mirrored_and_neither_without_augmenting():
    draws = digits().train.draw(500, torch.Generator().manual_seed(0))
    assert [column.unique().tolist() for column in draws.unbind(1)] == [[0, 1, 2], [0, 1, 2], [0]]
    assert digits(augment=False).train.draw(500, torch.Generator()).unique().tolist() == [0]


def test_a_damaged_file_is_reported(monkeypatch):
    monkeypatch.setattr(module, "SHA256", "0" * 64)
    with pytest.raises(DataError) as error:
        digits()
    assert str(error.value).endswith(
        f"digits.npz is damaged (its sha256 is not {'0' * 64}); install st3 again"
    )
