"""The numbers of a text as characters and bytes, and back."""

import pytest
import torch

from st3.data.alphabet import BYTES, Alphabet
from st3.data.text import text


@pytest.mark.parametrize("units", ["characters", "bytes"])
def test_a_text_is_written_as_it_was_read(units, tmp_path):
    tale = "Grüße, 🐇! " * 20
    (tmp_path / "tale.txt").write_text(tale, encoding="utf-8")
    splits = text(tmp_path / "tale.txt", units=units, context=4)
    alphabet = Alphabet(splits.classes)
    numbers = torch.cat([splits.train.text, splits.validation.text, splits.test.text]).tolist()
    assert alphabet.units == units
    assert alphabet.encode(tale) == numbers
    assert "".join(alphabet.decode(numbers)) == tale


def test_a_character_of_several_bytes_comes_when_its_last_byte_does():
    pieces = [*Alphabet(BYTES).decode([0x61, 0xC3, 0xBC, 0xFF, 0xC3])]
    assert pieces == ["a", "", "ü", "\ufffd", "", "\ufffd"]


def test_characters_that_have_no_number_are_named_once():
    assert Alphabet(("a", "b")).missing("abba, baba, c") == [",", " ", "c"]
    assert Alphabet(BYTES).missing("ä🐇") == []


def test_names_that_are_not_characters_are_refused():
    with pytest.raises(ValueError, match="neither characters nor the 256 bytes"):
        Alphabet(("cat", "dog"))
