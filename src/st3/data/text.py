"""Any text, one character or byte after the other; a book comes with the package.

The book is "Alice's Adventures in Wonderland" by Lewis Carroll (1865), which is in the public domain: the 148,331
characters from its first chapter on, in plain ASCII, as in the Canterbury corpus but with line ends of one character.
"""

import hashlib
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from .alphabet import BYTES
from .catalogue import DATASETS
from .errors import DataError
from .examples import Splits
from .sequences import Sequences

__all__ = ["text"]

FILE = "alice.txt"
SHA256 = "9f23253b172e92cc5d43cd04cc16178b89d826e078a6facec465fd312db1fcb0"
SHARE = 0.1  # of the text, for validation and for the test
MAX_BYTES = 2**28  # of a text, which is held in memory

Units = Literal["characters", "bytes"]


@DATASETS.register("text", model="gpt", recipe="text")
def text(
    directory: Path | None = None,
    *,
    download: bool = False,
    units: Units = "characters",
    context: int = 64,
    validation: float = SHARE,
    test: float = SHARE,
) -> Splits:
    """Read a text to be continued: a file of your own, or the book that comes with the package.

    `directory` is the file, in UTF-8; None means the book. Its last part is for the test, the one before for
    validation, the rest to train on. A sequence has `context` characters; with `units` "bytes" any file is a text.

    >>> splits = text(context=32)
    >>> len(splits.train), len(splits.classes)
    (3708, 70)
    """
    if download:
        raise DataError(
            "text reads a file of your own (--data-dir FILE) or the book of the package: leave out download"
        )
    content, name = _read_book() if directory is None else _read_own(Path(directory))
    numbers, classes = _as_bytes(content) if units == "bytes" else _as_characters(content, name)
    parts = _split(numbers, context, validation, test, f"{name} as {units}")
    return Splits(
        name="text",
        train=parts[0],
        validation=parts[1],
        test=parts[2],
        classes=classes,
        shape=(context,),
        task="language",
        fingerprint=hashlib.sha256(content).hexdigest(),
    )


def _read_book() -> tuple[bytes, str]:
    file = resources.files(__package__) / FILE
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{file} is damaged (its sha256 is not {SHA256}); install st3 again")
    return content, FILE


def _read_own(path: Path) -> tuple[bytes, str]:
    if path.is_dir():
        raise DataError(f"{path} is a folder; give one file of text: --data-dir {path / 'FILE.txt'}")
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise DataError(f"{path} has {size:,} bytes, over {MAX_BYTES:,}; give a part of it")
        return path.read_bytes(), str(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}; give a file of text (--data-dir)"
        ) from error


def _as_bytes(content: bytes) -> tuple[Tensor, tuple[str, ...]]:
    return torch.from_numpy(np.frombuffer(content, np.uint8).copy()), BYTES


def _as_characters(content: bytes, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """Return the text as numbers, and the characters they stand for, in the order of Unicode."""
    try:
        points = np.frombuffer(content.decode("utf-8").encode("utf-32-le"), np.uint32)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name} is not UTF-8 ({error.reason} at byte {error.start:,}); convert it, or read it as bytes: "
            "--set data.options.units=bytes"
        ) from None
    known, numbers = np.unique(points, return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int32)), tuple(map(chr, known.tolist()))


def _split(numbers: Tensor, context: int, validation: float, test: float, what: str) -> list[Sequences]:
    """Return the parts to train on, to validate and to test, by their place in the text."""
    for part, share in (("validation", validation), ("test", test)):
        if not 0 < share < 1:
            raise ValueError(f"{part} is a share of the text, above 0 and below 1, got {share:g}")
    if validation + test >= 1:
        raise ValueError(f"validation={validation:g} and test={test:g} leave nothing to train on")
    if context < 1:
        raise ValueError(f"context must be at least 1, got {context}")
    total = len(numbers)
    cuts = [0, total - round(total * (validation + test)), total - round(total * test), total]
    parts = [numbers[begin:end] for begin, end in pairwise(cuts)]
    if (least := min(map(len, parts))) <= context:
        raise DataError(
            f"{what} is too short: its smallest part has {least:,} of {total:,}, and a sequence takes {context + 1:,}; "
            "give a longer text, or a shorter context: --set data.options.context=16"
        )
    return [Sequences(part, context) for part in parts]
