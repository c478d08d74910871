"""CIFAR from folders and archives with the layout of the published ones."""

import pickle
import tarfile

import numpy as np
import pytest
import torch
from tests.data.tiny_files import cifar_files, expect, python2_pickle, tar_gz, write

from st3.data import DataError
from st3.data.cifar import CIFAR10, CIFAR100, MEAN, STD, cifar10, cifar100

FOLDER, ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"


@pytest.fixture
def files(monkeypatch):
    files = cifar_files(CIFAR10)
    expect(monkeypatch, CIFAR10, files)
    return files


def fault(*arguments, read=cifar10, **options) -> str:
    with pytest.raises(DataError) as error:
        read(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def labels(splits):
    return [p.labels.tolist() for p in (splits.train, splits.validation, splits.test)]


def test_the_last_training_pictures_are_for_validation_in_the_order_of_the_files(files, tmp_path):
    splits = cifar10(write(tmp_path, files))
    every = [number % 10 for number in range(24)]
    assert labels(splits) == [every[:18], every[18:20], every[20:]]
    assert splits.classes == tuple(f"class {number}" for number in range(10))


def test_5000_of_the_published_training_pictures_are_held_out():
    assert (CIFAR10.held_out, CIFAR100.held_out) == (5000, 5000)
    assert CIFAR10.train == ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")


def test_pixels_are_stored_by_channel_then_by_row(monkeypatch, tmp_path):
    files = cifar_files(CIFAR10)
    pixels = np.zeros((4, 3072), np.uint8)
    pixels[0, 0], pixels[0, 33], pixels[0, 2047] = 255, 51, 255  # red corner; red (1, 1); last green
    files["data_batch_1"] = python2_pickle(pixels, [0, 1, 2, 3])
    expect(monkeypatch, CIFAR10, files)
    (picture,), _ = cifar10(write(tmp_path, files)).train.batch(torch.tensor([0]), None)
    raw = picture * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
    assert {
        tuple(place): round(float(raw[tuple(place)]), 4) for place in (raw > 1e-4).nonzero().tolist()
    } == {
        (0, 0, 0): 1.0,
        (0, 1, 1): 0.2,
        (1, 31, 31): 1.0,
    }


def test_the_directory_may_be_the_folder_its_parent_or_have_or_be_the_archive(files, tmp_path):
    folder = write(tmp_path / "unpacked" / FOLDER, files)
    archive = write(tmp_path / "packed", {ARCHIVE: tar_gz(FOLDER, files)}) / ARCHIVE
    expected = labels(cifar10(folder))
    for directory in (folder.parent, archive.parent, archive, str(archive)):
        assert labels(cifar10(directory)) == expected
    assert [p.name for p in archive.parent.iterdir()] == [ARCHIVE]  # nothing was unpacked


def test_without_a_directory_it_is_read_from_the_cache(files, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write(tmp_path / "st3" / "cifar10" / FOLDER, files)
    assert len(cifar10().test) == 4


def test_fine_labels_of_cifar100_are_read(monkeypatch, tmp_path):
    files = cifar_files(CIFAR100)
    expect(monkeypatch, CIFAR100, files)
    splits = cifar100(write(tmp_path, files))
    assert labels(splits) == [[0, 1], [2, 3], [4, 5, 6, 7]]
    assert len(splits.classes) == 100


@pytest.mark.parametrize(("padding", "corner"), [("zero", 0), ("edge", 200)])
def test_crops_are_padded_by_four_pixels(monkeypatch, tmp_path, padding, corner):
    files = cifar_files(CIFAR10)
    files["data_batch_1"] = python2_pickle(np.full((4, 3072), 200, np.uint8), [0, 1, 2, 3])
    expect(monkeypatch, CIFAR10, files)
    train = cifar10(write(tmp_path, files), padding=padding).train
    (picture,), _ = train.batch(torch.tensor([0]), torch.tensor([[0, 8, 0]]))  # 4 pixels down, 4 to the left
    raw = ((picture[0] * STD[0] + MEAN[0]) * 255).round().int()
    assert raw[:4].unique().tolist() == raw[:, -4:].unique().tolist() == [corner]
    assert raw[4:, :-4].unique().tolist() == [200]


def test_augmenting_crops_and_mirrors_and_can_be_turned_off(files, tmp_path):
    write(tmp_path, files)
    draws = cifar10(tmp_path).train.draw(2000, torch.Generator().manual_seed(0))
    assert [column.unique().numel() for column in draws.unbind(1)] == [9, 9, 2]
    assert cifar10(tmp_path, augment=False).train.draw(2000, torch.Generator()).unique().tolist() == [0]


def test_an_empty_directory_says_what_to_do(tmp_path):
    assert fault(tmp_path / "none") == (
        f"cifar10 was not found in {tmp_path / 'none'} (neither {FOLDER} nor {ARCHIVE}); "
        f"add --download (in Python: download=True), or get {ADDRESS} and put it there"
    )


def test_a_missing_file_is_named(files, tmp_path):
    del files["data_batch_3"]
    assert fault(write(tmp_path / FOLDER, files)) == (
        f"cifar10: {tmp_path / FOLDER} lacks data_batch_3; "
        f"add --download (in Python: download=True), or get {ADDRESS} and put it there"
    )


def test_an_archive_is_read_instead_of_an_incomplete_folder_beside_it(files, tmp_path):
    write(tmp_path, {ARCHIVE: tar_gz(FOLDER, files)})
    del files["test_batch"]
    write(tmp_path / FOLDER, files)
    assert len(cifar10(tmp_path).test) == 4


def test_a_damaged_file_is_named_with_both_checksums(files, tmp_path):
    files["data_batch_2"] = b""
    text = fault(write(tmp_path, files))
    assert text.startswith(
        f"{tmp_path / 'data_batch_2'} is damaged or another version (md5 d41d8cd98f00b204e9800998ecf8427e, expected "
    )
    assert text.endswith(f"); delete it, then add --download (in Python: download=True) or get {ADDRESS}")
    archive = write(tmp_path / "packed", {ARCHIVE: tar_gz(FOLDER, files)}) / ARCHIVE
    assert fault(archive).startswith(f"data_batch_2 in {archive} is damaged or another version (md5 d41d8")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_archive_is_one_sentence(files, tmp_path, share):
    whole = tar_gz(FOLDER, files)
    archive = write(tmp_path, {ARCHIVE: whole[: int(share * len(whole))]}) / ARCHIVE
    text = fault(tmp_path)
    assert text.startswith(f"{archive} is truncated or not a tar.gz file (") or "does not contain" in text
    assert text.endswith(f"; delete it, then add --download (in Python: download=True) or get {ADDRESS}")


def test_an_archive_without_a_file_is_refused(files, tmp_path):
    del files["batches.meta"]
    archive = write(tmp_path, {ARCHIVE: tar_gz(FOLDER, files)}) / ARCHIVE
    assert fault(tmp_path).startswith(f"{archive} does not contain {FOLDER}/batches.meta; delete it")


def trap(name, kind=tarfile.REGTYPE, target=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "member",
    [
        trap("../outside"),
        trap(f"{FOLDER}/../../outside"),
        trap("/tmp/outside"),
        trap(f"{FOLDER}/link", tarfile.SYMTYPE, "/etc/passwd"),
        trap(f"{FOLDER}/link", tarfile.LNKTYPE, "../outside"),
        trap(f"{FOLDER}/device", tarfile.CHRTYPE),
    ],
    ids=lambda member: f"{member.name} {member.type!r}",
)
def test_an_archive_with_links_devices_or_paths_outside_is_refused(files, tmp_path, member):
    archive = write(tmp_path / "data", {ARCHIVE: tar_gz(FOLDER, {}, member)}) / ARCHIVE
    assert fault(archive) == (
        f"{archive} was refused: its entry {member.name!r} is a link or a device, leads out of the archive, is too "
        "large or one of too many; delete it and get it from its publisher"
    )
    assert [p.name for p in tmp_path.rglob("*")] == ["data", ARCHIVE]


def test_a_pickle_with_a_call_is_refused_even_with_the_right_checksum(monkeypatch, tmp_path):
    files = cifar_files(CIFAR10) | {
        "batches.meta": b"cos\nmkdir\n(S'" + str(tmp_path / "trap").encode() + b"'\ntR."
    }
    expect(monkeypatch, CIFAR10, files)
    text = fault(write(tmp_path, files))
    assert text.startswith(f"{tmp_path / 'batches.meta'} was refused: it calls os.mkdir")
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (
            "test_batch",
            python2_pickle(np.zeros((1, 3071), np.uint8), [1]),
            "does not hold pictures of 3×32×32 bytes",
        ),
        (
            "test_batch",
            python2_pickle(np.zeros((1, 3072), np.uint8), [1, 2]),
            "does not hold pictures of 3×32×32 bytes",
        ),
        ("test_batch", pickle.dumps([1, 2]), "does not hold pictures of 3×32×32 bytes with labels"),
        (
            "test_batch",
            python2_pickle(np.zeros((1, 3072), np.uint8), [10]),
            "has labels beyond its 10 classes",
        ),
        ("batches.meta", pickle.dumps({"label_names": ["cat"] * 9}), "names 9 classes, expected 10"),
        ("batches.meta", pickle.dumps({}), "names no classes, expected 10"),
    ],
)
def test_content_that_cannot_be_cifar_is_refused(monkeypatch, tmp_path, name, content, complaint):
    files = cifar_files(CIFAR10) | {name: content}
    expect(monkeypatch, CIFAR10, files)
    assert fault(write(tmp_path, files)).startswith(f"{tmp_path / name} {complaint}")


def test_if_one_of_its_files_is_given_the_error_names_the_folder(files, tmp_path):
    write(tmp_path / "cifar-10-batches-py", files)
    folder = tmp_path / "cifar-10-batches-py"
    expected = f"{folder / 'data_batch_1'} is one of the files of cifar10: give its folder, {folder}"
    assert fault(folder / "data_batch_1") == expected


def test_a_file_of_another_name_is_not_taken_for_a_damaged_archive(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    text = fault(tmp_path / "notes.txt")
    assert text.startswith(f"{tmp_path / 'notes.txt'} is truncated or not a tar.gz file (")
    assert text.endswith(
        "; give cifar-10-python.tar.gz, cifar-10-batches-py, or the folder that holds one of them"
    )
    assert "delete" not in text
