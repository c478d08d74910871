"""ImageNet: 1,000 class folders in train/ and val/."""

import pytest
from tests.data.tiny_files import picture_folders

from st3.data import DataError
from st3.data import imagenet as module
from st3.data.imagenet import imagenet

pytest.importorskip("PIL")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CLASSES", 2)
    return picture_folders(tmp_path / "data")


def fault(*arguments, **options) -> str:
    with pytest.raises(DataError) as error:
        imagenet(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_results_are_reported_on_val_which_by_default_validates_too(root):
    splits = imagenet(root)
    assert splits.validation is splits.test
    assert [splits.test.path(number).relative_to(root).as_posix() for number in range(4)] == [
        "val/cat/0.png",
        "val/cat/1.png",
        "val/dog/0.png",
        "val/dog/1.png",
    ]
    assert (len(splits.train), splits.shape, splits.test.resize) == (8, (3, 224, 224), 256)


def test_a_share_of_the_training_pictures_can_validate_instead(root):
    splits = imagenet(root, validation=0.5)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [4, 4, 4]
    assert {splits.validation.path(number).parents[1].name for number in range(4)} == {"train"}


def test_it_needs_a_directory_and_cannot_be_downloaded(root):
    assert fault() == "imagenet needs the directory that holds train/ and val/, each with a folder per class"
    assert fault(root, download=True) == (
        "imagenet cannot be downloaded by a program: register at https://image-net.org, "
        "then give the directory that holds train/ and val/"
    )


def test_other_classes_than_those_of_imagenet_are_sent_to_folder(root, monkeypatch):
    monkeypatch.undo()
    assert fault(root) == (
        f"{root} has 2 classes, but ImageNet has 1,000; give all of it, or read these pictures as --data folder"
    )
