"""What is in a stored model: zeros, multiply-adds and bytes, layer by layer."""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.reporting import report
from ..measure import Report
from ..training.sections import SettingsError
from .build import build_model
from .messages import passed_on
from .spec import ModelSpec
from .stored_model import StoredModel, load_into, read_stored_model

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
    """Everything about a stored model that can be said without running it on data."""

    path: Path
    model: str | None  # None: the file does not say, and nobody else did
    tensors: tuple[TensorRow, ...]
    report: Report | None  # None: the model cannot be built
    dense_bytes: int  # of all tensors, each number stored
    file_bytes: int
    compressed_bytes: int  # of the whole file, zlib
    about: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, strings, lists and dictionaries, ready for JSON."""
        return {
            "file": str(self.path),
            "model": self.model,
            "dense_bytes": self.dense_bytes,
            "file_bytes": self.file_bytes,
            "compressed_bytes": self.compressed_bytes,
            "tensors": [
                {"name": row.name, "shape": list(row.shape), "numbers": row.numbers, "zeros": row.zeros}
                for row in self.tensors
            ],
            "report": None if self.report is None else self.report.to_dict(),
            "about": self.about,
        }


def inspect_stored(
    path: str | Path, *, model: str | None = None, input_shape: tuple[int, int, int] | None = None
) -> Inspection:
    """Look at the model in a run's folder, a safetensors file or a saved state_dict.

    The network is built from what the file says, or by the name `model`; with the shape of an input (channels, height,
    width) its multiply-adds are counted too.
    """
    stored = read_stored_model(Path(path))
    made_by = ModelSpec(name=model) if model else stored.model
    shape = input_shape or stored.shape
    content = stored.path.read_bytes()
    return Inspection(
        path=stored.path,
        model=None if made_by is None else made_by.name,
        tensors=tuple(
            TensorRow(name, tuple(tensor.shape), tensor.numel(), _zeros(tensor))
            for name, tensor in stored.weights.items()
        ),
        report=None if made_by is None else _report(stored, made_by, shape),
        dense_bytes=sum(tensor.numel() * tensor.element_size() for tensor in stored.weights.values()),
        file_bytes=len(content),
        compressed_bytes=len(zlib.compress(content, 6)),
        about=stored.about,
    )


def _report(stored: StoredModel, made_by: ModelSpec, shape: tuple[int, int, int] | None) -> Report:
    about = stored.about.get("model", {})
    channels = about.get("channels") or (shape[0] if shape else 3)
    if shape is not None and shape[0] != channels:
        raise SettingsError(
            "--input",
            [
                f"{_text(shape)} has {shape[0]} channels, but the model in {stored.path} takes pictures of {channels}"
            ],
        )
    classes = about.get("classes") or _classes(stored, made_by, channels)
    network = load_into(build_model(made_by, classes, channels), stored, made_by.name)
    if shape is None:
        return report(network, include=stored.layers)
    try:
        return report(network, torch.zeros(1, *shape), include=stored.layers)
    except RuntimeError as error:
        raise SettingsError(
            "--input", [f"{made_by.name!r} cannot take a picture of {_text(shape)}: {passed_on(error)}"]
        ) from error


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _classes(stored: StoredModel, made_by: ModelSpec, channels: int) -> int:
    """Return for how many classes the weights are: what the rows say that differ from a model for ten."""
    guess = 10
    rows = {
        stored.weights[name].shape[0]
        for name, tensor in build_model(made_by, guess, channels).state_dict().items()
        if name in stored.weights and tensor.dim() and stored.weights[name].dim() == tensor.dim()
        and stored.weights[name].shape != tensor.shape and stored.weights[name].shape[1:] == tensor.shape[1:]
    }  # fmt: skip
    return rows.pop() if len(rows) == 1 else guess


def _zeros(tensor: Tensor) -> int:
    try:
        return tensor.numel() - int(torch.count_nonzero(tensor))
    except RuntimeError:  # torch cannot count in some of its types, such as eight-bit floats
        return tensor.numel() - int(torch.count_nonzero(tensor.double()))
