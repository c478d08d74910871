"""`export_onnx`: a model as one ONNX file, checked in ONNX Runtime before it is written."""

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..atomic import write_file
from .inputs import Axes
from .tracing import ExportedFile, ExportError, Traced, Trial, mute_torch, trace

__all__ = ["OPSET", "export_onnx"]

OPSET = 23  # the newest for which torch's exporter has its own operators
MOST_BYTES = 2**31 - 2**20  # protobuf, the format of the file, ends at 2 GB


def export_onnx(
    model: nn.Module,
    example_input: Any,
    path: str | PathLike[str],
    *,
    dynamic: Axes | None = None,
    opset: int = OPSET,
    check: bool = True,
) -> ExportedFile:
    """Write the model in eval mode as an ONNX file. The model itself is not changed.

    `example_input` is what the model is called with: a tensor, a tuple of arguments or a dict of named arguments; a
    batch of one will do. `dynamic` names the axes whose size may vary, for each argument of forward:
    {"input_ids": {0: "batch", 1: "sequence"}}. Axes with one name have one size; a torch.export.Dim in place of a name
    sets limits. By default the batch may vary, the first axis of every tensor; {} fixes all shapes.

    If ONNX Runtime is installed, its answers must equal the model's to 1e-4, for other sizes of the dynamic axes too;
    otherwise no file is written.
    """
    _require_exporter()
    _check_size(model)
    traced = trace(model, example_input, dynamic)
    content = _encode(traced, type(model).__name__, opset)
    checked = _check(content, traced.trials) if check else (None, None, "")
    write_file(Path(path), lambda file: file.write(content))
    return ExportedFile(Path(path), len(content), f"ONNX opset {opset}, {traced.sizes_text}", *checked)


def _encode(traced: Traced, model: str, opset: int) -> bytes:
    names = [traced.axes.get(name) for name in traced.trials[0].inputs.tensors] if traced.axes else None
    try:
        with mute_torch(), warnings.catch_warnings():
            # torch calls a function that it has deprecated itself
            warnings.filterwarnings(
                "ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning
            )
            warnings.filterwarnings("ignore", "# The axis name: .* shares the same shape constraints")
            made = torch.onnx.export(
                traced.program, dynamic_shapes=names, opset_version=opset, dynamo=True, verbose=False
            )
        assert made is not None
        content: bytes = made.model_proto.SerializeToString()
    except Exception as error:
        reason = " ".join(str(error.__cause__ or error).split())[:400]
        raise ExportError(f"torch cannot write {model} as ONNX, opset {opset}: {reason}") from error
    return content


def _check(content: bytes, trials: list[Trial]) -> tuple[str | None, float | None, str]:
    """Return what checked the file and the largest difference; or why nothing did."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        return None, None, ": ONNX Runtime is not installed (pip install 'st3[onnx]')"
    who = f"ONNX Runtime {onnxruntime.__version__}"
    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [node.name for node in session.get_inputs()]
        answers = []
        for trial in trials:
            arrays = [tensor.cpu().numpy() for tensor in trial.inputs.tensors.values()]
            answers.append(session.run(None, dict(zip(names, arrays, strict=True))))
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ExportError(
            f"{who} cannot run the exported model (check=False writes it all the same): {reason}"
        ) from error
    pairs = zip(trials, answers, strict=True)
    return who, max(trial.difference([torch.as_tensor(a) for a in found], who) for trial, found in pairs), ""


def _require_exporter() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(f"ONNX files need onnx and onnxscript: pip install 'st3[onnx]' ({error})") from None


def _check_size(model: nn.Module) -> None:
    tensors = {tensor.data_ptr(): tensor for tensor in (*model.parameters(), *model.buffers())}
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if size > MOST_BYTES:
        raise ExportError(
            f"an ONNX file holds less than 2 GB, but the weights of the model take {size / 1e9:.1f} GB"
        )
