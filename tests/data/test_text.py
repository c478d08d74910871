"""Text as a data set: what a sequence holds, where the parts lie, and texts that cannot be read."""

import hashlib
import re

import pytest
import torch

from st3.data import DataError
from st3.data.sequences import Sequences
from st3.data.text import text


def read(splits, part, *rows):
    """Return these sequences of a part as they stand in the text, each with the character after it."""
    inputs, targets = getattr(splits, part).batch(torch.tensor(rows), None)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    return [
        "".join(splits.classes[n] for n in [*row.tolist(), last])
        for row, last in zip(inputs, targets[:, -1], strict=True)
    ]


@pytest.fixture
def tale(tmp_path):
    path = tmp_path / "tale.txt"
    path.write_text("".join(chr(ord("a") + n % 26) for n in range(1000)), encoding="utf-8")
    return path


def test_the_book_begins_with_its_first_chapter_and_ends_with_the_test():
    splits = text(context=64)
    assert "CHAPTER I\n" in read(splits, "train", 0)[0]
    lengths = [len(part.text) for part in (splits.train, splits.validation, splits.test)]
    assert lengths == [118_665, 14_833, 14_833]
    assert splits.classes == tuple(sorted(splits.classes))
    assert splits.task == "language"


def test_parts_follow_one_another_in_the_text(tale):
    splits = text(tale, context=9, validation=0.2, test=0.1)
    assert read(splits, "train", 0, 1) == ["abcdefghij", "jklmnopqrs"]
    assert [len(part.text) for part in (splits.train, splits.validation, splits.test)] == [700, 200, 100]
    assert read(splits, "validation", 0)[0][0] == chr(ord("a") + 700 % 26)
    assert read(splits, "test", 0)[0][0] == chr(ord("a") + 900 % 26)


def test_evaluation_predicts_every_character_once_but_what_is_left_over():
    sequences = Sequences(torch.arange(100), context=8)
    _, targets = sequences.batch(torch.arange(len(sequences)), None)
    assert targets.flatten().tolist() == [*range(1, 97)]


def test_in_training_a_sequence_moves_by_less_than_its_length_and_never_beyond_the_text():
    sequences = Sequences(torch.arange(100), context=8)
    draws = sequences.draw(500, torch.Generator().manual_seed(0))
    assert sorted(set(draws.flatten().tolist())) == [*range(8)]
    inputs, targets = sequences.batch(torch.tensor([2, 11, 11]), torch.tensor([[5], [3], [7]]))
    assert inputs[:, 0].tolist() == [21, 91, 91]
    assert targets[:, -1].tolist() == [29, 99, 99]


def test_bytes_make_a_text_of_any_file(tmp_path):
    path = tmp_path / "noise.bin"
    path.write_bytes(bytes(range(256)) * 4)
    splits = text(path, units="bytes", context=16)
    assert len(splits.classes) == 256
    assert splits.train.batch(torch.tensor([0]), None)[0].tolist() == [[*range(16)]]
    assert splits.fingerprint == hashlib.sha256(path.read_bytes()).hexdigest()


def test_characters_are_those_of_unicode(tmp_path):
    path = tmp_path / "tale.txt"
    path.write_text("naïve ‘№’ 𝄞 " * 50, encoding="utf-8")
    splits = text(path, context=12)
    assert read(splits, "train", 0) == ["naïve ‘№’ 𝄞 n"]
    assert len(splits.classes) == 10


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            {"context": 100},
            "tale.txt as characters is too short: its smallest part has 100 of 1,000, and a seq",
        ),
        ({"download": True}, "text reads a file of your own (--data-dir FILE) or the book of the package"),
        ({"validation": 0.0}, "validation is a share of the text, above 0 and below 1, got 0"),
        ({"validation": 0.5, "test": 0.5}, "validation=0.5 and test=0.5 leave nothing to train on"),
        ({"context": 0}, "context must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_split_is_refused(options, fault, tale):
    with pytest.raises((DataError, ValueError), match=re.escape(fault)):
        text(tale, **options)


def test_files_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(DataError, match="is a folder; give one file of text"):
        text(tmp_path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        text(tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 100)
    with pytest.raises(
        DataError, match=r"is not UTF-8 .* at byte 3.*; convert it, or read it as bytes: --set data"
    ):
        text(tmp_path / "latin.txt")
