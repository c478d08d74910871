"""What the numbers of a text stand for: its characters in the order of Unicode, or all bytes."""

import codecs
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["BYTES", "Alphabet"]

BYTES = tuple(f"0x{number:02x}" for number in range(256))  # the names of bytes as classes


class Alphabet:
    """Turns text into numbers and back. `classes` are the names of the numbers, as the data set gives them.

    >>> Alphabet((" ", "a", "b")).encode("ab a")
    [1, 2, 0, 1]
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        if self.classes != BYTES and any(len(name) != 1 for name in self.classes):
            raise ValueError("the classes are neither characters nor the 256 bytes")
        self._numbers = {name: number for number, name in enumerate(self.classes)}

    @property
    def units(self) -> str:
        """What a number stands for: "characters" or "bytes"."""
        return "bytes" if self.classes == BYTES else "characters"

    def missing(self, text: str) -> list[str]:
        """Return the characters of a text that have no number, each once."""
        return (
            []
            if self.classes == BYTES
            else [each for each in dict.fromkeys(text) if each not in self._numbers]
        )

    def encode(self, text: str) -> list[int]:
        """Return a text as numbers."""
        if self.classes == BYTES:
            return list(text.encode("utf-8", "surrogateescape"))  # words of a shell may hold any bytes
        return [self._numbers[each] for each in text]

    def decode(self, numbers: Iterable[int]) -> Iterator[str]:
        """Yield the text of each number as it comes; of bytes, the characters of UTF-8 that they complete."""
        if self.classes != BYTES:
            yield from (self.classes[number] for number in numbers)
            return
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        yield from (decoder.decode(bytes([number])) for number in numbers)
        yield decoder.decode(b"", final=True)
