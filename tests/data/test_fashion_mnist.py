"""Fashion-MNIST from idx files, gzipped or not."""

import gzip

import numpy as np
import pytest
import torch
from tests.data.tiny_files import expect_fashion, fashion_files, idx, md5, write

from st3.data import DataError
from st3.data import fashion_mnist as module
from st3.data.fashion_mnist import fashion_mnist
from st3.data.idx import parse_idx

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.fixture
def packed(monkeypatch):
    return expect_fashion(monkeypatch)


def fault(*arguments) -> str:
    with pytest.raises(DataError) as error:
        fashion_mnist(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_last_training_pictures_are_for_validation(packed, tmp_path):
    splits = fashion_mnist(write(tmp_path, packed))
    assert splits.train.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert splits.validation.labels.tolist() == [0, 1]
    assert splits.test.labels.tolist() == [0, 1, 2, 3, 4]
    assert splits.classes[9] == "Ankle boot"


def test_60000_and_10000_pictures_are_published_and_5000_are_held_out():
    assert module.COUNTS == {"train": 60_000, "t10k": 10_000}
    assert module.HELD_OUT == 5_000


def test_unpacked_files_and_the_folder_of_torchvision_are_read_too(packed, tmp_path):
    write(tmp_path / "plain", fashion_files())
    write(tmp_path / "tv" / "FashionMNIST" / "raw", packed)
    plain, other = fashion_mnist(tmp_path / "plain"), fashion_mnist(tmp_path / "tv")
    assert torch.equal(plain.train.pixels, other.train.pixels)


def test_pixels_are_normalised(monkeypatch, tmp_path, packed):
    files = fashion_files() | {IMAGES: idx(np.full((12, 28, 28), 51, np.uint8))}
    (picture,), _ = fashion_mnist(write(tmp_path, files)).train.batch(torch.tensor([3]), None)
    torch.testing.assert_close(picture, torch.full((1, 28, 28), (0.2 - 0.2860) / 0.3530))


def test_crops_are_padded_by_two_pixels_and_mirrored(packed, tmp_path):
    draws = fashion_mnist(write(tmp_path, packed)).train.draw(2000, torch.Generator().manual_seed(0))
    assert [column.unique().numel() for column in draws.unbind(1)] == [5, 5, 2]


def test_a_missing_file_is_named_with_its_address(packed, tmp_path):
    del packed[f"{LABELS}.gz"]
    assert fault(write(tmp_path, packed)) == (
        f"fashion_mnist: {tmp_path} holds neither {LABELS}.gz nor {LABELS}; "
        f"add --download (in Python: download=True), or get "
        f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{LABELS}.gz and put it there"
    )


def test_a_damaged_gz_file_is_refused_by_its_checksum(packed, tmp_path):
    packed[f"{IMAGES}.gz"] = packed[f"{IMAGES}.gz"][:-5]
    text = fault(write(tmp_path, packed))
    assert text.startswith(f"{tmp_path / IMAGES}.gz is damaged or another version (md5 ")
    assert text.endswith(
        f"delete it, then add --download (in Python: download=True) or get {module.ADDRESS}/{IMAGES}.gz"
    )


@pytest.mark.parametrize(
    "content", [gzip.compress(b"abc", mtime=0)[:-4], b"no gzip"], ids=["cut off", "no gzip"]
)
def test_a_gz_file_that_cannot_be_unpacked_is_one_sentence(packed, tmp_path, monkeypatch, content):
    monkeypatch.setitem(module.MD5, IMAGES, md5(content))
    text = fault(write(tmp_path, packed | {f"{IMAGES}.gz": content}))
    assert text.startswith(f"{tmp_path / IMAGES}.gz cannot be read (")
    assert text.endswith("; delete it and download it again")


def test_a_label_without_a_class_is_refused(packed, tmp_path):
    files = fashion_files() | {LABELS: idx(np.full(12, 10, np.uint8))}
    assert fault(write(tmp_path, files)) == (
        f"{LABELS} in {tmp_path} has label 10, but the classes are 0 to 9; download it again"
    )


def test_an_idx_file_is_dimensions_and_then_bytes():
    content = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])
    assert parse_idx(content, (2, 3), "file").tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not an idx file of bytes in 2 dimensions: it starts with nothing"),
        (
            bytes([0, 0, 8, 1, 0, 0, 0, 6, 1, 2, 3, 4, 5, 6]),
            "is not an idx file of bytes in 2 dimensions: it starts with 00000801",
        ),
        (
            bytes([0, 0, 13, 2]),
            "is not an idx file of bytes in 2 dimensions: it starts with 00000d02 instead of 00000802",
        ),
        (bytes([0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6]), "holds 3×2 bytes instead of 2×3"),
        (bytes([0, 0, 8, 2, 0, 0]), "holds 0×0 bytes instead of 2×3"),
        (bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5]), "holds 5 bytes instead of 6"),
        (bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6, 7]), "holds 7 bytes instead of 6"),
    ],
)
def test_the_magic_number_and_the_sizes_of_an_idx_file_are_checked(content, complaint):
    with pytest.raises(DataError) as error:
        parse_idx(content, (2, 3), "file")
    assert str(error.value).startswith(f"file {complaint}")
    assert str(error.value).endswith("delete it and download it again")


def test_if_one_of_its_files_is_given_the_error_names_the_folder(packed, tmp_path):
    write(tmp_path, packed)
    file = tmp_path / "t10k-images-idx3-ubyte.gz"
    assert file.is_file()
    expected = f"fashion_mnist: {file} is a file; give the folder that holds its four files, {tmp_path}"
    assert fault(file) == expected
