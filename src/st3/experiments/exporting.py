"""Writes a stored model in another format: sparse file, ONNX, torch.export program."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from ..files.fit import shape_text
from ..files.onnx_file import export_onnx
from ..files.program_file import export_program
from ..files.size import SparseSize
from ..files.sparse import VALUES, Values, save_sparse, sparse_size
from ..files.tracing import ExportedFile
from ..training.sections import SettingsError
from .checks import check_input
from .messages import quote_error
from .rebuilt import rebuild
from .stored_model import StoredModel, read_stored_model

__all__ = ["Export", "export_stored"]

SUFFIXES = {"sparse": ".sparse.safetensors", "onnx": ".onnx", "pt2": ".pt2"}


@dataclass(frozen=True)
class Export:
    """The file that was written, and its size in other formats."""

    source: Path
    path: Path
    file_bytes: int
    sparse: SparseSize  # of the sparse file that was written, or that could be
    program: ExportedFile | None = None  # None: the sparse file was written


def export_stored(
    path: str | Path,
    to: str,
    *,
    output: str | Path | None = None,
    values: str = "same",
    model: str | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> Export:
    """Write the model of a run's folder or of a file in the format `to`: "sparse", "onnx" or "pt2".

    The file is `output`, or by default lies beside the model; with rounded `values` its name says so, and the lossless
    sparse file stays. `model` and `input_shape` (channels, height, width) are needed if the source does not name them.
    """
    _check(to, values)
    stored = read_stored_model(Path(path))
    target = _choose_target(Path(path), stored.path, to, values, None if output is None else Path(output))
    if to == "sparse":
        size = save_sparse(stored.weights, target, values=cast(Values, values), metadata=stored.about)
        return Export(stored.path, target, size.file_bytes, size)
    network, example = _build(stored, model, input_shape)
    program = (export_onnx if to == "onnx" else export_program)(network, example, target)
    size = sparse_size(stored.weights, metadata=stored.about)
    return Export(stored.path, target, program.file_bytes, size, program)


def _check(to: str, values: str) -> None:
    faults = []
    if to not in SUFFIXES:
        faults.append(f"--to must be one of {', '.join(SUFFIXES)}, got {to!r}")
    if values not in VALUES:
        faults.append(f"--values must be one of {', '.join(VALUES)}, got {values!r}")
    elif values != "same" and to != "sparse":
        faults.append(f"--values {values} goes with --to sparse only")
    if faults:
        raise SettingsError("export", faults)


def _choose_target(given: Path, source: Path, to: str, values: str, output: Path | None) -> Path:
    stem = source.name.removesuffix(SUFFIXES["sparse"]).removesuffix(source.suffix)
    rounding = "" if values == "same" else f".{values}"
    usual = f"{stem}{rounding}{SUFFIXES[to]}"
    if output is None:
        target = (given if given.is_dir() else source.parent) / usual
    else:
        target = output / usual if output.is_dir() else output
    if not target.parent.is_dir():
        raise SettingsError("--output", [f"there is no folder {target.parent}"])
    if target.exists() and target.samefile(source):
        raise SettingsError("--output", [f"{target} is the model to export: give another file name"])
    return target


def _build(
    stored: StoredModel, model: str | None, input_shape: tuple[int, ...] | None
) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return the network and an example input."""
    made_by = stored.made_by(model)
    shape = input_shape or stored.shape
    check_input(shape, batch=2)
    faults = []
    if made_by is None:
        faults.append("it does not name its model: add --model NAME")
    if shape is None:
        faults.append("it does not give the shape of its inputs: add --input 3x32x32")
    if made_by is None or shape is None:
        raise SettingsError(str(stored.path), faults)
    made = rebuild(stored, made_by, shape)
    try:
        # Random numbers, not zeros: otherwise the check of the exported file would not notice wrong weights.
        return made.network, made.make_inputs(2, shape)
    except RuntimeError as error:
        raise SettingsError(
            "--input", [f"{made.task.examples} of {shape_text(shape)} cannot be made: {quote_error(error)}"]
        ) from error
