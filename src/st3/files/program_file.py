"""`export_program`: a model as a torch.export program (.pt2), read back and checked before it is written."""

import io
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..atomic import write_file
from .inputs import Axes
from .tracing import ExportedFile, ExportError, Trial, list_tensors, trace

__all__ = ["export_program"]


def export_program(
    model: nn.Module,
    example_input: Any,
    path: str | PathLike[str],
    *,
    dynamic: Axes | None = None,
    check: bool = True,
) -> ExportedFile:
    """Write the model in eval mode as a torch.export program. The model itself is not changed.

    `torch.export.load(path).module()` runs the program without the model's code. `example_input` and `dynamic` are
    those of `export_onnx`. The program is read back, and its answers must equal the model's to 1e-4, for other sizes
    of the dynamic axes too; otherwise no file is written.
    """
    traced = trace(model, example_input, dynamic)
    buffer = io.BytesIO()
    torch.export.save(traced.program, buffer)
    content = buffer.getvalue()
    difference = _check(content, traced.trials) if check else None
    write_file(Path(path), lambda file: file.write(content))
    who = f"torch {torch.__version__}" if check else None
    kind = f"a torch.export program, {traced.sizes_text}"
    return ExportedFile(Path(path), len(content), kind, who, difference)


def _check(content: bytes, trials: list[Trial]) -> float:
    program = torch.export.load(io.BytesIO(content)).module()
    differences = []
    for trial in trials:
        try:
            with torch.no_grad():
                answer = program(*trial.inputs.args, **trial.inputs.kwargs)
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise ExportError(
                f"the program cannot take an input of {trial.inputs}, but the model can: {reason}; no file was written"
            ) from error
        differences.append(trial.difference(list_tensors(answer), "the program"))
    return max(differences)
