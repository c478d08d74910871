"""A model as a program of torch.export (.pt2), read back and checked before it is written."""

import io
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from .tracing import Exported, Trial, batch_text, outputs_of, traced
from .whole import write_whole

__all__ = ["export_program"]


def export_program(
    model: nn.Module,
    example_input: Tensor | Sequence[Tensor],
    path: str | PathLike[str],
    *,
    check: bool = True,
    dynamic_batch: bool = True,
) -> Exported:
    """Write the model, in eval mode, as a program for batches of any size; the model itself is not changed.

    `torch.export.load(path).module()` runs it without the model's code. `example_input` is what the model is called
    with, a tensor or several. The program is read back, and its answers must be the model's to 1e-4.
    """
    program, trials = traced(model, example_input, dynamic_batch)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    difference = _check(buffer, trials) if check else None
    content = buffer.getvalue()
    write_whole(Path(path), lambda file: file.write(content))
    who = f"torch {torch.__version__}" if check else None
    return Exported(
        Path(path), len(content), f"a program of torch.export, {batch_text(trials)}", who, difference
    )


def _check(buffer: io.BytesIO, trials: list[Trial]) -> float:
    program = torch.export.load(io.BytesIO(buffer.getvalue())).module()
    with torch.no_grad():
        return max(trial.difference(outputs_of(program(*trial.inputs)), "the program") for trial in trials)
