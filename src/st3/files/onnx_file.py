"""A model as one ONNX file, checked in ONNX Runtime before it is written."""

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from .tracing import Exported, ExportError, Trial, batch_text, quietly, traced, varying
from .whole import write_whole

__all__ = ["OPSET", "export_onnx"]

OPSET = 23  # the newest for which torch's exporter has operators of its own
MOST = 2**31 - 2**20  # bytes: protobuf, the form of the file, ends at 2 GB


def export_onnx(
    model: nn.Module,
    example_input: Tensor | Sequence[Tensor],
    path: str | PathLike[str],
    *,
    opset: int = OPSET,
    check: bool = True,
    dynamic_batch: bool = True,
) -> Exported:
    """Write the model, in eval mode, as an ONNX file for batches of any size; the model itself is not changed.

    `example_input` is what the model is called with, a tensor or several; a batch of one will do. If ONNX Runtime is
    installed, its answers must be the model's to 1e-4, for three sizes of batch, else no file is written.
    """
    _require_exporter()
    _check_size(model)
    program, trials = traced(model, example_input, dynamic_batch)
    names = varying(trials[0].inputs) if dynamic_batch else None
    content = _content(program, names, type(model).__name__, opset)
    checked = _check(content, trials) if check else (None, None, "")
    write_whole(Path(path), lambda file: file.write(content))
    return Exported(Path(path), len(content), f"ONNX opset {opset}, {batch_text(trials)}", *checked)


def _content(program: ExportedProgram, names: Any, model: str, opset: int) -> bytes:
    try:
        with quietly(), warnings.catch_warnings():
            # torch calls what it has deprecated itself
            warnings.filterwarnings(
                "ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning
            )
            made = torch.onnx.export(
                program, dynamic_shapes=names, opset_version=opset, dynamo=True, verbose=False
            )
        assert made is not None
        content: bytes = made.model_proto.SerializeToString()
    except Exception as error:
        reason = " ".join(str(error.__cause__ or error).split())[:400]
        raise ExportError(f"torch cannot write {model} as ONNX, opset {opset}: {reason}") from error
    return content


def _check(content: bytes, trials: list[Trial]) -> tuple[str | None, float | None, str]:
    """Return who has checked the file, with what difference, and why nobody has."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        return None, None, ": ONNX Runtime is not installed (pip install 'st3[onnx]')"
    who = f"ONNX Runtime {onnxruntime.__version__}"
    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [node.name for node in session.get_inputs()]
        answers = [
            session.run(
                None, dict(zip(names, (tensor.cpu().numpy() for tensor in trial.inputs), strict=True))
            )
            for trial in trials
        ]
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ExportError(
            f"{who} cannot run the exported model, which check=False would write: {reason}"
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
    if size > MOST:
        raise ExportError(
            f"an ONNX file holds less than 2 GB, and the weights of the model take {size / 1e9:.1f} GB"
        )
