"""Your own pictures in class folders, with or without train/, val/ and test/."""

import pytest
from tests.data.tiny_files import picture_folders

from st3.data import DataError
from st3.data.folder import folder

pytest.importorskip("PIL")


def fault(*arguments, error=DataError, **options) -> str:
    with pytest.raises(error) as caught:
        folder(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def names(root, pictures) -> list[str]:
    return [pictures.path(number).relative_to(root).as_posix() for number in range(len(pictures))]


def counts(splits) -> list[int]:
    return [len(part) for part in (splits.train, splits.validation, splits.test)]


def test_classes_are_the_folders_in_alphabetical_order(tmp_path):
    splits = folder(picture_folders(tmp_path, ("dog", "cat"), train=2, val=1, test=1), side=6)
    assert splits.classes == ("cat", "dog")
    assert splits.shape == (3, 6, 6)
    assert splits.train.labels.tolist() == [0, 0, 1, 1]
    assert names(tmp_path, splits.train) == [
        "train/cat/0.png",
        "train/cat/1.png",
        "train/dog/0.png",
        "train/dog/1.png",
    ]


def test_folders_named_val_and_test_are_taken_as_they_are(tmp_path):
    splits = folder(picture_folders(tmp_path, train=4, val=2, test=1))
    assert counts(splits) == [8, 4, 2]
    assert names(tmp_path, splits.validation)[0] == "val/cat/0.png"
    assert names(tmp_path, splits.test) == ["test/cat/0.png", "test/dog/0.png"]


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({"train": 20, "val": 3}, [36, 6, 4]),
        ({"train": 20, "test": 3}, [36, 4, 6]),
        ({"train": 20}, [32, 4, 4]),
        ({"all": 20}, [32, 4, 4]),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_a_tenth_of_the_training_pictures_takes_the_place_of_each_missing_folder(tmp_path, there, expected):
    splits = folder(picture_folders(tmp_path, **there))
    assert counts(splits) == expected
    every = [
        name for part in (splits.train, splits.validation, splits.test) for name in names(tmp_path, part)
    ]
    assert len(set(every)) == sum(expected)


def test_held_out_pictures_are_evenly_spaced_over_every_class(tmp_path):
    splits = folder(picture_folders(tmp_path, all=8), validation=0.25, test=0.25)
    assert names(tmp_path, splits.validation) == ["cat/3.png", "cat/7.png", "dog/3.png", "dog/7.png"]
    assert names(tmp_path, splits.test) == ["cat/2.png", "cat/6.png", "dog/2.png", "dog/6.png"]
    assert names(tmp_path, splits.train)[:4] == ["cat/0.png", "cat/1.png", "cat/4.png", "cat/5.png"]
    assert splits.test.labels.tolist() == [0, 0, 1, 1]


def test_every_class_gives_at_least_one_picture(tmp_path):
    picture_folders(tmp_path, ("cat",), all=40)
    picture_folders(tmp_path, ("dog",), all=3)
    splits = folder(tmp_path)
    assert [part.labels.bincount().tolist() for part in (splits.train, splits.validation, splits.test)] == [
        [32, 1],
        [4, 1],
        [4, 1],
    ]


@pytest.mark.parametrize(("options", "held_out"), [({"test": 0}, 4), ({"validation": 0, "test": 0.5}, 20)])
def test_with_a_share_of_0_validation_and_test_are_the_same_pictures(tmp_path, options, held_out):
    splits = folder(picture_folders(tmp_path, all=20), **options)
    assert splits.validation is splits.test
    assert counts(splits) == [40 - held_out, held_out, held_out]


def test_evaluation_resizes_to_eight_sevenths_of_the_side_unless_told(tmp_path):
    picture_folders(tmp_path, all=3)
    assert [folder(tmp_path, side=side).test.resize for side in (224, 32, 1)] == [256, 37, 1]
    assert folder(tmp_path, side=32, resize=32).test.resize == 32
    assert fault(tmp_path, side=9, resize=8, error=ValueError) == (
        "side must be at least 1 and at most resize, and that at most 4,096 pixels, got side=9 and resize=8"
    )
    assert "at most 4,096 pixels" in fault(tmp_path, side=10**6, error=ValueError)  # terabytes of pixels


def test_impossible_shares_are_refused(tmp_path):
    picture_folders(tmp_path, all=4)
    for share in (-0.1, 1, 10):
        assert fault(tmp_path, validation=share, error=ValueError) == (
            f"validation is a share of the training pictures, from 0 to below 1, got {share:g}"
        )
    assert fault(tmp_path, validation=0, test=0, error=ValueError) == (
        "validation and test cannot both be 0: there are no folders for them"
    )
    assert fault(tmp_path, validation=0.5, test=0.5) == (
        f"class folder {tmp_path / 'cat'} has too few pictures (4) to hold out validation=0.5 and test=0.5 of them "
        "and train on the rest; add pictures, or choose smaller shares"
    )


def test_a_share_for_a_part_that_has_a_folder_is_refused(tmp_path):
    picture_folders(tmp_path)
    assert fault(tmp_path, validation=0.2) == (
        f"validation=0.2 cannot be held out: {tmp_path} has val/ for it; leave one out"
    )


def test_it_needs_a_directory_and_has_nothing_to_download(tmp_path):
    expected = "folder reads pictures of your own and downloads none: give their directory (--data-dir) and no download"
    assert fault() == expected
    assert fault(tmp_path, download=True) == expected


def test_faults_of_the_folders_are_named(tmp_path):
    assert fault(tmp_path / "none") == (
        f"cannot list {tmp_path / 'none'} (No such file or directory); it must be a folder that holds one folder per "
        "class"
    )
    (tmp_path / "flat" / "train").mkdir(parents=True)
    assert fault(tmp_path / "flat") == (
        f"{tmp_path / 'flat' / 'train'} has no class folders; sort its pictures into one folder per class"
    )
    root = picture_folders(tmp_path / "data")
    (root / "val" / "emu").mkdir()
    text = fault(root)
    assert text.startswith(f"class folder {root / 'val' / 'emu'} has no pictures (.jpg, .jpeg, ")
    assert text.endswith("); put some there, or remove the class")


def test_val_without_train_is_refused(tmp_path):
    root = picture_folders(tmp_path, val=2, test=2)
    assert fault(root) == (
        f"{root} has val/ and test/ but no train/; add it, or put all class folders into one directory to have it split"
    )


def test_every_part_must_have_the_same_classes(tmp_path):
    root = picture_folders(tmp_path, train=4, val=1, test=1)
    (root / "val" / "cat").rename(root / "val" / "cow")
    assert fault(root) == (
        f"{root} must have the same classes in train/ and val/ and test/, but train/ lacks cow and val/ lacks cat and "
        "test/ lacks cow; add the missing folders, or delete these classes"
    )
