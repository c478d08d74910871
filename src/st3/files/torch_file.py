"""Files that torch.save wrote: checked against their own checksums, and read without running code from them."""

import zipfile
from pathlib import Path
from typing import Any

import torch

__all__ = ["read_torch_file"]


def read_torch_file(path: Path) -> Any:
    """Return what was saved, on the CPU: tensors and plain containers only. ValueError says why it cannot be read.

    The file is a zip archive with a CRC-32 of every record. torch.load does not compare them, so that a flipped bit
    would become another weight. Files from before torch 1.6 are plain pickles and have no checksums.
    """
    try:
        if _is_archive(path):
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise ValueError(f"its record {damaged} does not match its checksum")
        return torch.load(path, map_location="cpu", weights_only=True)
    except ValueError:
        raise
    except Exception as error:  # a damaged archive or pickle can raise anything
        raise ValueError(str(error) or type(error).__name__) from error


def _is_archive(path: Path) -> bool:
    """Whether this is a zip archive by its beginning or its end; either may be damaged."""
    with path.open("rb") as file:
        return file.read(2) == b"PK" or zipfile.is_zipfile(file)
