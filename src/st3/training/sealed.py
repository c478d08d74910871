"""JSON objects with a checksum inside, compared before the content is used.

    {"epoch": 1, ..., "checksum": "0f81bb5ed9b1c0a2"}

The checksum is the BLAKE2b hash (8 bytes, hexadecimal) of the content as JSON with sorted keys, so the layout of the
file may change, but no value. An object without one is from an earlier version or another program, and is accepted.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Line", "parse", "parse_lines", "seal"]

CHECKSUM = "checksum"


@dataclass(frozen=True)
class Line:
    """One line of a JSON-lines file."""

    number: int
    text: bytes
    content: dict[str, Any]
    fault: str = ""  # what is wrong with it; its content is empty then


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with its checksum."""
    return {**content, CHECKSUM: _checksum(content)}


def parse(text: bytes) -> dict[str, Any]:
    """Return the object in `text` without its checksum; ValueError says what is wrong, and in which line."""
    try:
        # We never write NaN; one from another program counts as missing.
        content = json.loads(text.decode(), parse_constant=lambda _name: None)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: {error.msg} (column {error.colno})") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"line {1 + text[: error.start].count(10)}: not UTF-8") from None
    except (ValueError, RecursionError):  # a number with thousands of digits, brackets in brackets
        raise ValueError("line 1: nested too deeply, or a number is too long") from None
    if not isinstance(content, dict):
        raise ValueError(f"line 1: expected a JSON object, found a {type(content).__name__}")
    found = content.pop(CHECKSUM, None)
    if found is not None and found != _checksum(content):
        raise ValueError(
            f'its checksum does not match (if it was edited on purpose, take out its "{CHECKSUM}")'
        )
    return content


def parse_lines(text: bytes) -> Iterator[Line]:
    """Yield the lines of a JSON-lines file, damaged ones too; an incomplete last line is still being written."""
    lines = text.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield Line(number, line, parse(line))
        except ValueError as error:
            if number < len(lines):
                yield Line(number, line, {}, str(error).removeprefix("line 1: "))


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
