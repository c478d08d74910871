"""JSON with a checksum inside."""

import json

import pytest

from st3.training.sealed import parse, parse_lines, seal

CONTENT = {"loss": 0.1, "layers": {"conv": [1, 2.5, None]}, "name": "σ"}


def test_another_layout_is_accepted_and_another_value_is_not():
    sealed = seal(CONTENT)
    assert list(sealed)[-1] == "checksum"
    assert parse(json.dumps(sealed).encode()) == CONTENT
    assert parse(json.dumps(sealed, indent=7, sort_keys=True, ensure_ascii=False).encode()) == CONTENT
    with pytest.raises(
        ValueError, match=r"^its checksum does not match \(if it was edited on purpose, take out its"
    ):
        parse(json.dumps({**sealed, "loss": 0.2}).encode())


def test_content_without_a_checksum_is_accepted():
    assert parse(json.dumps(CONTENT).encode()) == CONTENT


def test_every_flipped_bit_is_noticed_or_harmless():
    text = json.dumps(seal(CONTENT)).encode()
    for bit in range(8 * len(text)):
        flipped = bytearray(text)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = parse(bytes(flipped))
        except ValueError:
            continue
        assert {key: found[key] for key in CONTENT} == CONTENT  # only the name of the checksum was damaged


def test_a_number_of_thousands_of_digits_is_refused():
    with pytest.raises(ValueError, match="a number is too long"):
        parse(b'{"a": ' + b"9" * 9999 + b"}")


def test_damaged_lines_are_told_by_number_and_an_incomplete_last_one_is_left_out():
    good = json.dumps(seal(CONTENT)).encode()
    lines = list(parse_lines(b"\n".join([good, good.replace(b"0.1", b"0.3"), b"", b"{", good, good[:20]])))
    assert [(line.number, line.fault[:30], line.content) for line in lines] == [
        (1, "", CONTENT),
        (2, "its checksum does not match (i", {}),
        (4, "Expecting property name enclos", {}),
        (5, "", CONTENT),
    ]
