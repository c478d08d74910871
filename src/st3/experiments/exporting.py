"""A stored model in another form: a sparse file, ONNX, a program of torch.export."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from ..files.fit import shape_text
from ..files.onnx_file import export_onnx
from ..files.program_file import export_program
from ..files.size import SparseSize
from ..files.sparse import Values, save_sparse, sparse_size
from ..files.tracing import Exported
from ..training.sections import SettingsError
from .messages import quote_error
from .rebuilt import rebuild
from .stored_model import StoredModel, read_stored_model

__all__ = ["Export", "export_stored"]

ENDINGS = {"sparse": ".sparse.safetensors", "onnx": ".onnx", "pt2": ".pt2"}
VALUES = ("same", "fp16", "bf16")


@dataclass(frozen=True)
class Export:
    """What was written, and how large it is beside other forms of the same model."""

    source: Path
    path: Path
    file_bytes: int
    sparse: SparseSize  # of the sparse file: the one written, or the one that could be
    program: Exported | None = None  # None: the sparse file was written


def export_stored(
    path: str | Path,
    to: str,
    *,
    output: str | Path | None = None,
    values: str = "same",
    model: str | None = None,
    input_shape: tuple[int, int, int] | None = None,
) -> Export:
    """Write the model in a run's folder or in a file as `to` says: "sparse", "onnx" or "pt2".

    `model` and `input_shape` (channels, height, width) are for files that do not say which network they are of.
    """
    _check(to, values)
    stored = read_stored_model(Path(path))
    target = _target(Path(path), stored.path, to, None if output is None else Path(output))
    if to == "sparse":
        size = save_sparse(stored.weights, target, values=cast(Values, values), metadata=stored.about)
        return Export(stored.path, target, size.file_bytes, size)
    network, example = _called(stored, model, input_shape)
    program = (export_onnx if to == "onnx" else export_program)(network, example, target)
    size = sparse_size(stored.weights, metadata=stored.about)
    return Export(stored.path, target, program.file_bytes, size, program)


def _check(to: str, values: str) -> None:
    faults = []
    if to not in ENDINGS:
        faults.append(f"--to must be one of {', '.join(ENDINGS)}, got {to!r}")
    if values not in VALUES:
        faults.append(f"--values must be one of {', '.join(VALUES)}, got {values!r}")
    elif values != "same" and to != "sparse":
        faults.append(f"--values {values} is for --to sparse alone")
    if faults:
        raise SettingsError("export", faults)


def _target(given: Path, source: Path, to: str, output: Path | None) -> Path:
    stem = source.name.removesuffix(ENDINGS["sparse"]).removesuffix(source.suffix)
    usual = f"{stem}{ENDINGS[to]}"
    if output is None:
        target = (given if given.is_dir() else source.parent) / usual
    else:
        target = output / usual if output.is_dir() else output
    if not target.parent.is_dir():
        raise SettingsError("--output", [f"there is no folder {target.parent}"])
    if target.exists() and target.samefile(source):
        raise SettingsError("--output", [f"{target} is the file that is read: give another name"])
    return target


def _called(
    stored: StoredModel, model: str | None, input_shape: tuple[int, int, int] | None
) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return the network and something to call it with."""
    made_by = stored.made_by(model)
    shape = input_shape or stored.shape
    faults = []
    if made_by is None:
        faults.append("it does not say which model it is: add --model NAME")
    if shape is None:
        faults.append("it does not say what its pictures look like: add --input 3x32x32")
    if made_by is None or shape is None:
        raise SettingsError(str(stored.path), faults)
    generator = torch.Generator().manual_seed(0)  # numbers, not zeros: the check must see every weight
    network = rebuild(stored, made_by, shape)
    try:
        return network, torch.randn(2, *shape, generator=generator)
    except RuntimeError as error:
        raise SettingsError(
            "--input", [f"pictures of {shape_text(shape)} cannot be made: {quote_error(error)}"]
        ) from error
