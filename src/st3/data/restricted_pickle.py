"""Load a pickle of plain values and NumPy arrays; refuse any other, because a pickle can call any function."""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import DataError

__all__ = ["load_plain"]


def load_plain(content: bytes, file: str) -> Any:
    """Return the pickled value; strings written by Python 2 become bytes. `file` names the content in errors."""
    try:
        return _Reader(content, file).load()
    except DataError:
        raise
    except Exception as error:  # damaged bytes can raise almost anything
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{file} is damaged and cannot be read ({reason}); download it again") from error


class _Reader(pickle.Unpickler):
    def __init__(self, content: bytes, file: str) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.file = file

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise DataError(
                f"{self.file} was refused: it calls {module}.{name}, which no file of pictures needs; "
                "delete it and get it from its publisher"
            )
        return ALLOWED[module, name]


def _dtype(code: str | bytes, align: object = False, copy: object = False) -> np.dtype[Any]:
    """Return a plain dtype; old files pass align=0 and copy=1, which today's NumPy rejects."""
    text = code.decode("ascii") if isinstance(code, bytes) else code
    if text not in PLAIN:
        raise ValueError(f"an array of dtype {text!r}")
    return np.dtype(text)


PLAIN = {"b1", "u1", "i1", "i2", "i4", "i8", "f4", "f8"}
# This function has moved between versions of NumPy; every array refers to its present place.
RECONSTRUCT: Any = np.empty(0).__reduce__()[0]
ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): str.encode,  # unlike codecs.encode, it can only turn text into bytes
}
