"""Checksums: is this file the one that was published?"""

import hashlib
from pathlib import Path

from .errors import DataError

__all__ = ["check_md5", "md5_of_file"]


def check_md5(content: bytes, expected: str, file: str, remedy: str) -> None:
    """Raise a DataError that names `file` and the `remedy` unless `content` has the `expected` md5 checksum."""
    # md5, because that is what the publishers give; it guards against damage, not against forgery.
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataError(f"{file} is damaged or another version (md5 {found}, expected {expected}); {remedy}")


def md5_of_file(path: Path) -> str:
    """Return the md5 checksum of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
