"""The list of pictures in class folders is kept until a folder changes."""

import json
import os

import pytest
from tests.data.tiny_files import picture_folders

from st3.data.listing import list_pictures

pytest.importorskip("PIL")

PARTS = ("train", "val")


@pytest.fixture
def root(tmp_path):
    return picture_folders(tmp_path / "data")


def forbid_listing(monkeypatch):
    monkeypatch.setattr(os, "listdir", lambda path: pytest.fail("the folders were listed again"))


def test_pictures_are_listed_by_part_and_class(root):
    four, two = [f"{number}.png" for number in range(4)], ["0.png", "1.png"]
    expected = {"train": {"cat": four, "dog": four}, "val": {"cat": two, "dog": two}}
    assert list_pictures(root, PARTS) == expected
    assert list_pictures(root / "val", ("",)) == {"": expected["val"]}


def test_other_files_and_hidden_ones_are_left_out(root):
    for name in ("notes.txt", ".hidden.png", "picture.JPEG"):
        (root / "val" / "cat" / name).touch()
    (root / "val" / ".hidden").mkdir()
    assert list_pictures(root, PARTS)["val"]["cat"] == ["0.png", "1.png", "picture.JPEG"]


def test_the_list_is_kept_beside_the_data_and_used(root, monkeypatch):
    listed = list_pictures(root, PARTS)
    assert json.loads((root / ".st3-index.json").read_text())["pictures"] == listed
    forbid_listing(monkeypatch)
    assert list_pictures(root, PARTS) == listed


def test_the_folders_are_listed_again_when_one_changes(root):
    list_pictures(root, PARTS)
    (root / "train" / "cat" / "0.png").rename(root / "train" / "dog" / "9.png")
    assert list_pictures(root, PARTS)["train"]["dog"][-1] == "9.png"


def test_another_set_of_parts_is_listed_again(root):
    list_pictures(root, PARTS)
    assert [*list_pictures(root, ("train",))] == ["train"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 0}'])
def test_a_damaged_list_is_replaced(root, content):
    (root / ".st3-index.json").write_text(content)
    listed = list_pictures(root, PARTS)
    assert json.loads((root / ".st3-index.json").read_text())["pictures"] == listed


def test_a_list_that_cannot_be_written_beside_the_data_goes_to_the_cache(root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (root / ".st3-index.json").mkdir()  # a folder in its place: even an administrator cannot write the file
    listed = list_pictures(root, PARTS)
    (kept,) = (tmp_path / "cache" / "st3").iterdir()
    assert kept.name.startswith("index-")
    forbid_listing(monkeypatch)
    assert list_pictures(root, PARTS) == listed
    assert not list(root.glob("*.part"))
