"""Read a file of a data set whose size is known to be small: another one is not read into memory."""

from pathlib import Path

from .errors import DataError

__all__ = ["MAX_BYTES", "read_file"]

MAX_BYTES = 2**28  # of one file; the largest that is read as a whole has 155 MB


def read_file(path: Path) -> bytes:
    """Return the bytes of the file, or say why not."""
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise DataError(
                f"{path} has {size:,} bytes, far more than were published; delete it and get it again"
            )
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; make it readable") from error
