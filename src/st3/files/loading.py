"""Sparse files read back, into a model or as a state_dict; what is damaged is said, and never trusted."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, overload

from torch import Tensor, nn

from ..core.layers.find import unwrap
from .contents import CONTENTS, Contents, Entry
from .fit import disagreements
from .packing import unpack
from .weights import KEY, WeightsError, import_safetensors

__all__ = ["SparseFileError", "is_sparse_file", "load_sparse", "read_sparse"]

Model = TypeVar("Model", bound=nn.Module)

# Without a model, nothing but the file says how large its tensors are: a few bytes may claim to be terabytes of zeros.
FREE, EACH = 1 << 26, 250  # numbers that any file may hold, and for each of its bytes


class SparseFileError(WeightsError):
    """A file that is no sparse file, a damaged one, or one of another model."""


@overload
def load_sparse(path: str | PathLike[str]) -> dict[str, Tensor]: ...


@overload
def load_sparse(path: str | PathLike[str], model: Model) -> Model: ...


def load_sparse(path: str | PathLike[str], model: nn.Module | None = None) -> nn.Module | dict[str, Tensor]:
    """Read a file of `save_sparse` into `model` and return it; without a model, return a state_dict.

    All names and shapes must be those of the model, else nothing is changed. Tied weights are one tensor again.
    """
    if isinstance(path, nn.Module) or not (model is None or isinstance(model, nn.Module)):
        raise TypeError(
            f"load_sparse takes a path, then the model to load it into, "
            f"got {type(path).__name__} and {type(model).__name__}"
        )
    if model is None:
        return read_sparse(Path(path))[0]
    plain = unwrap(model)
    wanted = {
        name: tuple(tensor.shape) for name, tensor in plain.state_dict().items() if isinstance(tensor, Tensor)
    }
    weights = read_sparse(Path(path), wanted)[0]
    try:
        plain.load_state_dict(weights)
    except RuntimeError as error:
        raise SparseFileError(
            f"{path} cannot be loaded into the model: {' '.join(str(error).split())}"
        ) from None
    return model


def read_sparse(
    path: Path, wanted: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[dict[str, Tensor], Any]:
    """Return the state_dict and the metadata that were saved; `wanted` are the shapes that it must have."""
    with _opened(path) as file:
        if wanted is not None and (faults := disagreements(wanted, file.shapes())):
            raise SparseFileError(f"the weights in {path} are not those of the model: {'; '.join(faults)}")
        if wanted is None:
            file.check_size()
        weights = {name: file.tensor(name, entry) for name, entry in file.contents.tensors.items()}
        weights |= {name: weights[other] for name, other in file.contents.tied.items()}
        return weights, file.metadata()


def is_sparse_file(path: Path) -> bool:
    """Return whether this is a safetensors file, and one of `save_sparse`."""
    safetensors = import_safetensors()
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return CONTENTS in (file.metadata() or {})
    except (safetensors.SafetensorError, OSError):
        return False


@dataclass(frozen=True)
class _SparseFile:
    """An open file whose list of contents is sound."""

    path: Path
    file: Any
    contents: Contents

    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = {name: self._shape(name, entry) for name, entry in self.contents.tensors.items()}
        return shapes | {name: shapes[other] for name, other in self.contents.tied.items()}

    def _shape(self, name: str, entry: Entry) -> tuple[int, ...]:
        return tuple(self.file.get_slice(name).get_shape()) if entry.shape is None else entry.shape

    def check_size(self) -> None:
        """Raise if the file claims more numbers than one of its size should."""
        shapes = [entry.shape for entry in self.contents.tensors.values() if entry.shape is not None]
        numbers = sum(map(prod, shapes))
        if numbers > FREE + EACH * self.path.stat().st_size:
            raise SparseFileError(
                f"{self.path} claims to hold {numbers:,} numbers, over {EACH} for each of its bytes: if that is true, "
                f"load it into its model: st3.load_sparse(path, model)"
            )

    def tensor(self, name: str, entry: Entry) -> Tensor:
        parts = [self.file.get_tensor(f"{name}{part}") for part in entry.part_names]
        try:
            entry.check(parts)
            tensor = unpack(entry.packed(parts)) if entry.is_sparse else parts[0]
        except ValueError as error:
            raise SparseFileError(f"{self.path} is damaged: {name}: {error}") from None
        return tensor if entry.dtype is None else tensor.to(entry.dtype)

    def metadata(self) -> Any:
        text = self.file.metadata().get(KEY, "{}")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text  # somebody else's idea of our key: whoever asks is told


@contextmanager
def _opened(path: Path) -> Iterator[_SparseFile]:
    safetensors = import_safetensors()
    if not path.is_file():
        raise SparseFileError(f"there is no file {path}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if CONTENTS not in metadata:
                raise SparseFileError(f"{path} is no sparse file: it was not written by st3.save_sparse")
            yield _SparseFile(path, file, _contents(path, metadata, set(file.keys())))
    except (safetensors.SafetensorError, OSError) as error:
        raise SparseFileError(f"{path} is no safetensors file, or a damaged one ({error})") from None


def _contents(path: Path, metadata: Mapping[str, str], stored: set[str]) -> Contents:
    try:
        contents = Contents.read(metadata)
    except ValueError as error:
        raise SparseFileError(f"{path} is damaged or not understood: {error}") from None
    parts = {f"{name}{part}" for name, entry in contents.tensors.items() for part in entry.part_names}
    if parts != stored:
        odd = ", ".join(sorted(parts ^ stored)[:3])
        raise SparseFileError(f"{path} is damaged: its tensors are not those it lists ({odd})")
    return contents
