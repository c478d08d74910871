"""Read a pickle of plain values and NumPy arrays, and refuse every other: a pickle may name any function to call."""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import DataError

__all__ = ["load_plain"]


def load_plain(content: bytes, file: str) -> Any:
    """Return what was pickled; texts of Python 2 arrive as bytes. `file` names the content in errors."""
    try:
        return _Reader(content, file).load()
    except DataError:
        raise
    except Exception as error:  # damaged bytes fail in as many ways as a pickle has instructions
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{file} is damaged and cannot be read ({reason}); get it again") from error


class _Reader(pickle.Unpickler):
    def __init__(self, content: bytes, file: str) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.file = file

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise DataError(
                f"{self.file} was refused: it asks for {module}.{name}, which no file of pictures needs; "
                "delete it and get it from its makers"
            )
        return ALLOWED[module, name]


def _dtype(code: str | bytes, align: object = False, copy: object = False) -> np.dtype[Any]:
    """Make a plain type; align and copy are 0 and 1 in old files, which numpy no longer likes."""
    text = code.decode("ascii") if isinstance(code, bytes) else code
    if text not in PLAIN:
        raise ValueError(f"an array of type {text!r}")
    return np.dtype(text)


PLAIN = {"b1", "u1", "i1", "i2", "i4", "i8", "f4", "f8"}
# Its address has moved between versions of numpy; every array knows today's.
RECONSTRUCT: Any = np.empty(0).__reduce__()[0]
ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): str.encode,  # unlike codecs.encode it makes bytes of text, nothing else
}
