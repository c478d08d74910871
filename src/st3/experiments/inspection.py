"""Inspect a stored model: zeros, multiply-adds and bytes, layer by layer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.report import report
from ..files.fit import shape_text
from ..files.size import SparseSize, count_zeros
from ..files.sparse import sparse_size
from ..files.weights import WeightsError
from ..measure import Report
from ..training.sections import SettingsError
from .checks import check_input
from .messages import quote_error
from .rebuilt import rebuild
from .spec import ModelSpec
from .stored_model import StoredModel, read_stored_model

__all__ = ["Inspection", "TensorRow", "inspect_stored"]


@dataclass(frozen=True)
class TensorRow:
    """One tensor of the file."""

    name: str
    shape: tuple[int, ...]
    numbers: int
    zeros: int


@dataclass(frozen=True)
class Inspection:
    """Everything that a stored model reveals without being run on data."""

    path: Path
    model: str | None  # None: neither the file nor the user names it
    tensors: tuple[TensorRow, ...]
    report: Report | None  # None: the model cannot be built
    dense_bytes: int  # of all tensors, zeros included
    file_bytes: int
    is_sparse: bool  # whether it is a sparse file
    sparse: SparseSize | None  # what a sparse file would take; None: this is one, or no such file can hold it
    about: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, strings, lists and dictionaries, ready for JSON."""
        return {
            "file": str(self.path),
            "model": self.model,
            "dense_bytes": self.dense_bytes,
            "file_bytes": self.file_bytes,
            "is_sparse": self.is_sparse,
            "sparse": None if self.sparse is None else self.sparse.to_dict(),
            "tensors": [
                {"name": row.name, "shape": list(row.shape), "numbers": row.numbers, "zeros": row.zeros}
                for row in self.tensors
            ],
            "report": None if self.report is None else self.report.to_dict(),
            "about": self.about,
        }


def inspect_stored(
    path: str | Path, *, model: str | None = None, input_shape: tuple[int, ...] | None = None
) -> Inspection:
    """Inspect the model in a run's folder, a safetensors file or a saved state_dict.

    The network is the one that the file names, or `model`. With the shape of an input (channels, height, width of a
    picture) its multiply-adds are counted too.
    """
    stored = read_stored_model(Path(path))
    made_by = stored.made_by(model)
    shape = input_shape or stored.shape
    check_input(shape)
    return Inspection(
        path=stored.path,
        model=None if made_by is None else made_by.name,
        tensors=tuple(
            TensorRow(name, tuple(tensor.shape), tensor.numel(), count_zeros(tensor))
            for name, tensor in stored.weights.items()
        ),
        report=None if made_by is None else _report(stored, made_by, shape),
        dense_bytes=sum(tensor.numel() * tensor.element_size() for tensor in stored.weights.values()),
        file_bytes=stored.path.stat().st_size,
        is_sparse=stored.is_sparse,
        sparse=_sparse_size(stored),
        about=stored.about,
    )


def _report(stored: StoredModel, made_by: ModelSpec, shape: tuple[int, ...] | None) -> Report:
    made = rebuild(stored, made_by, shape)
    if shape is None:
        return report(made.network, include=stored.layers)
    try:
        return report(made.network, made.task.blank(1, shape), include=stored.layers)
    except RuntimeError as error:
        raise SettingsError(
            "--input",
            [
                f"{made_by.name!r} cannot take a {made.task.example} of {shape_text(shape)}: {quote_error(error)}"
            ],
        ) from error


def _sparse_size(stored: StoredModel) -> SparseSize | None:
    if stored.is_sparse:  # its values may be rounded, which would make the bound wrong
        return None
    try:
        return sparse_size(stored.weights, metadata=stored.about)
    except WeightsError:  # a type that safetensors does not support
        return None
