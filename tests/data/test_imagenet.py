"""Pictures in class folders."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.data.tiny_files import noise, picture_folders

from st3.data import Batches, DataError
from st3.data.imagenet import imagenet
from st3.data.photographs import MEAN, STD

Image = pytest.importorskip("PIL.Image")

SMALL = {"side": 6, "resize": 8}


@pytest.fixture
def root(tmp_path):
    return picture_folders(tmp_path / "data")


def fault(*arguments, **options) -> str:
    with pytest.raises(DataError) as error:
        imagenet(*arguments, **(SMALL | options))
    assert "\n" not in str(error.value)
    return str(error.value)


def raw(pictures, index, draws=None):
    """Return one picture's bytes, before they were normalised."""
    (picture,), _ = pictures.batch(torch.tensor([index]), draws)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return ((picture * std + mean) * 255).round().to(torch.uint8)


def names(pictures):
    return [f"{path.parent.name}/{path.name}" for path in map(pictures.path, range(len(pictures)))]


def test_classes_are_the_folders_in_order_of_their_names(root):
    splits = imagenet(root, **SMALL)
    assert splits.classes == ("cat", "dog")
    assert splits.shape == (3, 6, 6)
    assert names(splits.train) == [f"{name}/{number}.png" for name in ("cat", "dog") for number in range(4)]
    assert splits.train.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert splits.test.labels.tolist() == [0, 0, 1, 1]


def test_by_default_validation_is_the_test_set_too(root):
    splits = imagenet(root, **SMALL)
    assert splits.validation is splits.test


def test_every_nth_training_picture_of_each_class_can_be_held_out(root):
    splits = imagenet(root, validation=4, **SMALL)
    assert names(splits.validation) == ["cat/1.png", "cat/3.png", "dog/1.png", "dog/3.png"]
    assert names(splits.train) == ["cat/0.png", "cat/2.png", "dog/0.png", "dog/2.png"]
    assert splits.validation.labels.tolist() == [0, 0, 1, 1]
    assert len(splits.test) == 4
    assert [len(imagenet(root, validation=n, **SMALL).train) for n in (1, 2, 3, 6)] == [7, 6, 5, 2]


def test_a_class_must_keep_pictures_to_train_on(root):
    for held_out in (8, 9):
        with pytest.raises(ValueError) as error:
            imagenet(root, validation=held_out, **SMALL)
        assert str(error.value) == (
            f"validation={held_out} of 8 training pictures would leave a class without pictures to train on"
        )
    with pytest.raises(ValueError, match="validation must be at least 0, got -1"):
        imagenet(root, validation=-1, **SMALL)


def test_evaluation_scales_the_short_side_and_takes_the_centre(root):
    pixels = noise(8, 12, 3, seed=99)  # 12 wide, 8 high: already as asked, so only the centre is cut out
    Image.fromarray(pixels).save(root / "val" / "cat" / "0.png")
    shown = raw(imagenet(root, side=6, resize=8).test, 0)
    assert shown.tolist() == pixels[1:7, 3:9].transpose(2, 0, 1).tolist()


def test_training_shows_a_part_scaled_to_the_side_and_mirrors_every_other(root):
    left_to_right = np.broadcast_to(np.arange(0, 240, 2, dtype=np.uint8)[None, :, None], (100, 120, 3))
    Image.fromarray(left_to_right.copy()).save(root / "train" / "cat" / "0.png")
    train = imagenet(root, **SMALL).train
    shown = [raw(train, 0, torch.tensor([seed])).int() for seed in range(60)]
    mirrored = [int(picture[0, 0, 0]) > int(picture[0, 0, -1]) for picture in shown]
    assert 15 < sum(mirrored) < 45
    assert len({tuple(picture.flatten().tolist()) for picture in shown}) > 50


def test_a_seed_is_drawn_for_every_picture(root):
    draws = imagenet(root, **SMALL).train.draw(3, torch.Generator().manual_seed(0))
    assert (draws.shape, draws.dtype, len(set(draws.tolist()))) == ((3,), torch.int64, 3)


def grey(picture):
    return picture.convert("L")


def palette(picture):
    return picture.convert("P")


def see_through(picture):
    picture = picture.convert("P")
    picture.info["transparency"] = bytes(range(256))
    return picture


@pytest.mark.parametrize(
    ("change", "ending"),
    [
        (grey, "png"),
        (lambda picture: picture.convert("LA"), "png"),
        (lambda picture: picture.convert("1"), "png"),
        (lambda picture: picture.convert("RGBA"), "png"),
        (lambda picture: picture.convert("CMYK"), "jpg"),
        (grey, "JPEG"),
        (palette, "png"),
        (see_through, "png"),
    ],
)
def test_other_colours_become_red_green_and_blue(root, change, ending):
    path = root / "val" / "cat" / f"00.{ending}"
    changed = change(Image.fromarray(np.full((8, 8, 3), 255, np.uint8)))
    changed.save(path)
    test = imagenet(root, side=8, resize=8).test
    index = names(test).index(f"cat/00.{ending}")
    assert raw(test, index).min() >= 254


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("content", [b"no picture", b"", None], ids=["text", "empty", "truncated"])
def test_a_broken_picture_is_reported_with_its_path(root, workers, content):
    path = root / "val" / "dog" / "1.png"
    path.write_bytes(path.read_bytes()[:150] if content is None else content)
    with pytest.raises(DataError) as error:
        list(Batches(imagenet(root, **SMALL).test, 2, seed=None, workers=workers).epoch())
    text = str(error.value)
    assert text.startswith(f"{path} cannot be read as a picture (")
    assert text.endswith("); replace or delete it")
    assert "\n" not in text


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_make_the_same_batches(root):
    train = imagenet(root, **SMALL).train
    one, two = (list(Batches(train, 3, seed=0, workers=workers).epoch()) for workers in (0, 2))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(one, two, strict=True))


def test_faults_of_the_folders_are_named(root, tmp_path):
    assert fault(tmp_path / "none") == (
        f"cannot list {tmp_path / 'none' / 'train'} (No such file or directory); give the directory in which each "
        "of train/ and val/ holds one folder per class"
    )
    assert fault() == "imagenet needs a directory that holds train/ and val/ with a folder per class"
    assert fault(root, download=True) == (
        "imagenet cannot be downloaded by a program: register at https://image-net.org, "
        "then give the directory with train/ and val/"
    )
    (root / "val" / "emu").mkdir()
    text = fault(root)
    assert text.startswith(f"{root / 'val' / 'emu'} has no pictures (.jpg, .jpeg, ")
    assert text.endswith("put some there, or remove the class from train/ and val/")
    flat = tmp_path / "flat"
    (flat / "train").mkdir(parents=True)
    assert fault(flat) == (
        f"{flat / 'train'} has no class folders; sort its pictures into one folder per class"
    )


def test_classes_of_train_and_val_must_be_the_same(root):
    (root / "val" / "cat").rename(root / "val" / "cow")
    assert fault(root) == (
        f"{root} must have the same classes in train/ and val/, but has cat only in train/ and cow only in val/; "
        "move or delete these folders"
    )


def test_impossible_sizes_are_refused(root):
    with pytest.raises(
        ValueError, match="side must be at least 1 and at most resize, got side=9 and resize=8"
    ):
        imagenet(root, side=9, resize=8)


def test_the_list_of_files_is_kept_beside_the_data_and_used(root, monkeypatch):
    imagenet(root, **SMALL)
    assert json.loads((root / ".st3-index.json").read_text())["pictures"]["val"] == {
        "cat": ["0.png", "1.png"],
        "dog": ["0.png", "1.png"],
    }
    monkeypatch.setattr(os, "listdir", lambda path: pytest.fail("the folders were listed again"))
    assert len(imagenet(root, **SMALL).train) == 8


def test_the_list_is_made_anew_when_a_class_folder_changes(root):
    imagenet(root, **SMALL)
    (root / "train" / "cat" / "0.png").rename(root / "train" / "dog" / "9.png")
    assert names(imagenet(root, **SMALL).train)[-1] == "dog/9.png"
    (root / "train" / "dog" / "notes.txt").touch()
    assert len(imagenet(root, **SMALL).train) == 8


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 0}'])
def test_a_damaged_list_is_made_anew(root, content):
    (root / ".st3-index.json").write_text(content)
    assert len(imagenet(root, **SMALL).train) == 8
    assert "pictures" in json.loads((root / ".st3-index.json").read_text())


def test_where_nothing_may_be_written_the_list_goes_to_the_users_cache(root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (root / ".st3-index.json").mkdir()  # a folder in its place: cannot be written, even by an administrator
    assert len(imagenet(root, **SMALL).train) == 8
    (kept,) = (tmp_path / "cache" / "st3").iterdir()
    assert kept.name.startswith("index-")
    monkeypatch.setattr(os, "listdir", lambda path: pytest.fail("the folders were listed again"))
    assert len(imagenet(root, **SMALL).train) == 8
    assert not list(root.glob("*.part"))


def test_without_pillow_the_package_imports_and_says_what_to_install(root):
    program = (
        "import sys; sys.modules['PIL'] = None\n"
        "from st3.data import DATASETS, DataError\n"
        "try: DATASETS['imagenet'](sys.argv[1])\n"
        "except DataError as error: print(error)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program, str(root)], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "reading pictures needs Pillow: pip install 'st3[image]'\n"


def test_sixteen_bits_of_grey_become_eight(root):
    Image.fromarray(np.full((8, 8), 128 * 256, np.uint16)).save(root / "val" / "cat" / "00.png")
    test = imagenet(root, side=8, resize=8).test
    assert raw(test, names(test).index("cat/00.png")).unique().tolist() == [128]
