"""`load_sparse`: reads a sparse file into a model or as a state_dict. Damaged files are refused, never trusted."""

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
from .ties import fill_ties, find_ties
from .weights import WeightsError, import_safetensors, parse_metadata

__all__ = ["SparseFileError", "is_sparse_file", "load_sparse", "read_sparse"]

Model = TypeVar("Model", bound=nn.Module)

# Without a model, only the file says how large its tensors are, and a few bytes may claim terabytes of zeros.
# So the numbers it claims may not exceed ALLOWANCE plus PER_BYTE for each byte of the file.
ALLOWANCE, PER_BYTE = 1 << 26, 250


class SparseFileError(WeightsError):
    """The file is not a sparse file, is damaged, or belongs to another model.

    The message names the tensor. The model has not been changed. Copy the file again if it is damaged; build the
    model as it was when the file was written if names or shapes differ.
    """


@overload
def load_sparse(path: str | PathLike[str]) -> dict[str, Tensor]: ...


@overload
def load_sparse(path: str | PathLike[str], model: Model) -> Model: ...


def load_sparse(path: str | PathLike[str], model: nn.Module | None = None) -> nn.Module | dict[str, Tensor]:
    """Read a file of `save_sparse` into `model` and return the model; without a model, return a state_dict.

    All names and shapes must match the model, otherwise nothing is changed. Weights that are tied in the file are one
    tensor in the state_dict; weights that are tied in the model need only one of their names in the file.
    """
    if isinstance(path, nn.Module) or not (model is None or isinstance(model, nn.Module)):
        raise TypeError(
            f"load_sparse takes a path, then the model to load it into, "
            f"got {type(path).__name__} and {type(model).__name__}"
        )
    if model is None:
        return read_sparse(Path(path))[0]
    plain = unwrap(model)
    wanted = {name: tensor for name, tensor in plain.state_dict().items() if isinstance(tensor, Tensor)}
    weights = read_sparse(Path(path), wanted)[0]
    try:
        plain.load_state_dict(weights)
    except RuntimeError as error:
        raise SparseFileError(
            f"{path} cannot be loaded into the model: {' '.join(str(error).split())}"
        ) from None
    return model


def read_sparse(path: Path, wanted: Mapping[str, Tensor] | None = None) -> tuple[dict[str, Tensor], Any]:
    """Return the stored state_dict and metadata; `wanted` are the tensors of the model that it must fit."""
    with _open(path) as file:
        tensors, tied = file.contents.tensors, file.contents.tied
        if wanted is None:
            file.check_size()
        else:
            tied = tied | fill_ties(find_ties(wanted), [*tensors, *tied])
            file.check_shapes(wanted, tied)
        weights = {name: file.read(name, entry) for name, entry in tensors.items()}
        for name, other in tied.items():
            weights[name] = weights[other]
        return weights, file.metadata


def is_sparse_file(path: Path) -> bool:
    """Whether `save_sparse` wrote this file."""
    safetensors = import_safetensors()
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return CONTENTS in (file.metadata() or {})
    except (safetensors.SafetensorError, OSError):
        return False


@dataclass(frozen=True)
class _SparseFile:
    """An open file whose table of contents is valid."""

    path: Path
    file: Any
    contents: Contents
    metadata: Any

    def check_shapes(self, wanted: Mapping[str, Tensor], tied: Mapping[str, str]) -> None:
        """Raise unless names and shapes are those of the model."""
        shapes = {name: self._shape(name, entry) for name, entry in self.contents.tensors.items()}
        for name, other in tied.items():
            shapes[name] = shapes[other]
        faults = disagreements({name: tuple(tensor.shape) for name, tensor in wanted.items()}, shapes)
        if faults:
            raise SparseFileError(f"the weights in {self.path} do not fit the model: {'; '.join(faults)}")

    def _shape(self, name: str, entry: Entry) -> tuple[int, ...]:
        return tuple(self.file.get_slice(name).get_shape()) if entry.shape is None else entry.shape

    def check_size(self) -> None:
        """Raise if the file claims to hold more numbers than its size makes plausible."""
        shapes = [entry.shape for entry in self.contents.tensors.values() if entry.shape is not None]
        numbers = sum(map(prod, shapes))
        if numbers > ALLOWANCE + PER_BYTE * self.path.stat().st_size:
            raise SparseFileError(
                f"{self.path} claims to hold {numbers:,} numbers, over {PER_BYTE} for each of its bytes: if you trust "
                f"it, load it into its model: st3.load_sparse(path, model)"
            )

    def read(self, name: str, entry: Entry) -> Tensor:
        parts = [self.file.get_tensor(f"{name}{part}") for part in entry.parts]
        try:
            entry.check(parts)
            tensor = unpack(entry.to_packed(parts)) if entry.is_sparse else parts[0]
        except ValueError as error:
            raise SparseFileError(f"{self.path} is damaged: {name}: {error}") from None
        return tensor if entry.dtype is None else tensor.to(entry.dtype)


@contextmanager
def _open(path: Path) -> Iterator[_SparseFile]:
    safetensors = import_safetensors()
    if not path.is_file():
        raise SparseFileError(f"there is no file {path}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if CONTENTS not in metadata:
                raise SparseFileError(f"{path} is not a sparse file: st3.save_sparse did not write it")
            contents = _read_contents(path, metadata, set(file.keys()))
            yield _SparseFile(path, file, contents, _read_metadata(path, metadata))
    except (safetensors.SafetensorError, OSError) as error:
        raise SparseFileError(f"{path} is not a safetensors file, or it is damaged ({error})") from None


def _read_contents(path: Path, metadata: Mapping[str, str], stored: set[str]) -> Contents:
    try:
        contents = Contents.from_metadata(metadata)
    except ValueError as error:
        raise SparseFileError(f"{path} cannot be read: {error}") from None
    listed = {f"{name}{part}" for name, entry in contents.tensors.items() for part in entry.parts}
    if listed != stored:
        odd = ", ".join(sorted(listed ^ stored)[:3])
        raise SparseFileError(f"{path} is damaged: it holds other tensors than it lists ({odd})")
    return contents


def _read_metadata(path: Path, metadata: Mapping[str, str]) -> Any:
    try:
        return parse_metadata(metadata, {})
    except ValueError as error:
        raise SparseFileError(f"{path} is damaged: its metadata: {error}") from None
