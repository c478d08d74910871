"""Is this file the one its makers published?"""

import hashlib
from pathlib import Path

from .errors import DataError

__all__ = ["check_md5", "md5_of_file"]


def check_md5(content: bytes, expected: str, file: str, remedy: str) -> None:
    """Raise a DataError that names `file` and the `remedy` unless `content` has the `expected` md5 checksum."""
    # Published by the makers, and against accidents only: hence md5.
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataError(f"{file} is damaged or another version (md5 {found}, expected {expected}); {remedy}")


def md5_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
