"""Writes a stored model in another format: sparse file, ONNX, torch.export program, file of the engine."""

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
from .build import build_splits
from .calibration import calibration_inputs
from .checks import check_input
from .messages import quote_error
from .rebuilt import rebuild
from .stored_model import PROGRAMS, StoredModel, read_stored_model

__all__ = ["Export", "export_stored"]

SUFFIXES = {"sparse": ".sparse.safetensors", **PROGRAMS}


@dataclass(frozen=True)
class Export:
    """The file that was written, and its size in other formats."""

    source: Path
    path: Path
    file_bytes: int
    sparse: SparseSize  # of the sparse file that was written, or that could be
    program: ExportedFile | None = None  # None: the sparse file was written
    skips_zeros: bool = False  # whether those who run the program do


def export_stored(
    path: str | Path,
    to: str,
    *,
    output: str | Path | None = None,
    values: str = "same",
    model: str | None = None,
    input_shape: tuple[int, ...] | None = None,
    batch: int | None = None,
    threads: int | None = None,
    int8: bool = False,
    data_dir: str | Path | None = None,
) -> Export:
    """Write the model of a run's folder or of a file in the format `to`: "sparse", "onnx", "pt2" or "engine".

    The file is `output`, or by default lies beside the model; with rounded `values` its name says so, and the lossless
    sparse file stays. `model` and `input_shape` (channels, height, width) are needed if the source does not name them.
    A file of the engine is for one `batch` size and number of `threads`, by default 1 each. With `int8` it computes in
    int8, calibrated on examples that the model was trained on, whose files lie in `data_dir` if not where they were.
    """
    _check(
        to, values, {"--batch": batch, "--threads": threads, "--int8": int8 or None, "--data-dir": data_dir}
    )
    stored = read_stored_model(Path(path))
    target = _choose_target(Path(path), stored.path, to, values, None if output is None else Path(output))
    if to == "sparse":
        size = save_sparse(stored.weights, target, values=cast(Values, values), metadata=stored.about)
        return Export(stored.path, target, size.file_bytes, size)
    # A traced program needs two pictures: with one it would be fixed to a batch of 1.
    network, example = _build(stored, model, input_shape, (batch or 1) if to == "engine" else 2)
    if to == "engine":
        typical = _calibration(stored, data_dir) if int8 else None
        program = _export_engine(network, example, target, threads or 1, typical)
    else:
        program = (export_onnx if to == "onnx" else export_program)(network, example, target)
    size = sparse_size(stored.weights, metadata=stored.about)
    return Export(stored.path, target, program.file_bytes, size, program, skips_zeros=to == "engine")


def _calibration(stored: StoredModel, data_dir: str | Path | None) -> list[torch.Tensor]:
    data = stored.data_in(data_dir)
    if data is None:
        raise SettingsError(
            "--int8",
            [f"{stored.path} does not say which data it was trained on, whose examples would calibrate it"],
        )
    return calibration_inputs(build_splits(data))


def _export_engine(
    network: torch.nn.Module,
    example: torch.Tensor,
    target: Path,
    threads: int,
    typical: list[torch.Tensor] | None,
) -> ExportedFile:
    from ..engine.native import NativeError  # the engine is imported when it is used
    from .engine_file import export_engine

    try:
        return export_engine(network, example, target, threads, typical)
    except (ValueError, NativeError) as error:
        raise SettingsError("export", [str(error)]) from error


def _check(to: str, values: str, of_engine: dict[str, object]) -> None:
    faults = []
    for option, given in of_engine.items():
        if given is not None and to != "engine":
            faults.append(f"{option} goes with --to engine only")
    if of_engine["--data-dir"] is not None and not of_engine["--int8"]:
        faults.append("--data-dir goes with --int8 only")
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
    stored: StoredModel, model: str | None, input_shape: tuple[int, ...] | None, batch: int
) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return the network and an example input."""
    made_by = stored.made_by(model)
    shape = input_shape or stored.shape
    check_input(shape, batch)
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
        return made.network, made.make_inputs(batch, shape)
    except RuntimeError as error:
        raise SettingsError(
            "--input", [f"{made.task.examples} of {shape_text(shape)} cannot be made: {quote_error(error)}"]
        ) from error
