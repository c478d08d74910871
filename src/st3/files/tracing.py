"""A model looked at as an exporter does: in eval mode for a while, on batches of several sizes, and left as it was."""

import contextlib
import io
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ..core.layers.find import unwrap
from ..tables import size_text
from .fit import shape_text

__all__ = ["ExportError", "Exported", "Trial", "batch_text", "outputs_of", "quietly", "traced", "varying"]

AT_MOST = 1e-4  # the difference of an output, as a part of the largest one or of 1

Inputs = tuple[Tensor, ...]


class ExportError(RuntimeError):
    """A model that cannot be exported, or whose export gives other answers."""


@dataclass(frozen=True)
class Exported:
    """A file that was written, and how it was checked."""

    path: Path
    file_bytes: int
    kind: str
    checked_by: str | None  # None: not checked
    difference: float | None = None  # the largest found, as a part of the largest output or of 1
    remark: str = ""

    def __str__(self) -> str:
        if self.checked_by is None:
            check = f"not checked{self.remark}"
        else:
            check = f"{self.checked_by} answers as the model does (largest difference {self.difference:.1e})"
        return f"{self.path}: {size_text(self.file_bytes)}, {self.kind}; {check}"


@dataclass(frozen=True)
class Trial:
    """What goes in, and what the model answers."""

    inputs: Inputs
    outputs: list[Tensor]

    def difference(self, found: Sequence[Tensor], who: str) -> float:
        """Return the largest difference to other answers; ExportError if it is too large."""
        shapes = [[tuple(tensor.shape) for tensor in tensors] for tensors in (self.outputs, found)]
        if shapes[0] != shapes[1]:
            raise ExportError(f"{who} answers with shapes {shapes[1]}, the model with {shapes[0]}")
        worst = 0.0
        for wanted, other in zip(self.outputs, found, strict=True):
            if not wanted.numel():
                continue
            scale = max(1.0, float(wanted.double().nan_to_num(0, 0, 0).abs().max()))
            same = torch.isclose(wanted.double(), other.double(), rtol=0, atol=0, equal_nan=True)
            gap = float(torch.where(same, 0.0, (wanted.double() - other.double()).abs()).max()) / scale
            coarse = 4 * torch.finfo(wanted.dtype).eps if wanted.is_floating_point() else 0.0
            if not gap <= max(AT_MOST, coarse):
                batch = len(self.inputs[0]) if self.inputs[0].dim() else 1
                raise ExportError(
                    f"{who} gives other answers than the model: for a batch of {batch} they differ by {gap:.2g} of "
                    f"the largest one (at most {max(AT_MOST, coarse):.1g} was expected); no file was written"
                )
            worst = max(worst, gap)
        return worst


def traced(
    model: nn.Module, example_input: Tensor | Sequence[Tensor], dynamic_batch: bool
) -> tuple[ExportedProgram, list[Trial]]:
    """Return the model in eval mode as a program, and batches with its answers; the model is as it was before."""
    plain = unwrap(model)
    inputs = _inputs(example_input)
    batches = _batches(inputs) if dynamic_batch else [inputs]
    modes = [(module, module.training) for module in plain.modules()]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            plain.eval()
            trials = [_trial(plain, batch) for batch in batches]
            return _captured(plain, trials[0].inputs, dynamic_batch), trials
        finally:
            for module, was_training in modes:
                module.training = was_training


def _captured(model: nn.Module, inputs: Inputs, dynamic_batch: bool) -> ExportedProgram:
    shapes = varying(inputs) if dynamic_batch else None
    try:
        with quietly():
            return torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        reason = " ".join(str(error).split())[:400]
        hint = "; if the size of the batch must be fixed, say dynamic_batch=False" if dynamic_batch else ""
        raise ExportError(f"torch.export cannot take {type(model).__name__}: {reason}{hint}") from error


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep back what torch logs and prints while it traces: an error says it in a sentence.

    What the model itself has to say was heard when it was called.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def batch_text(trials: Sequence[Trial]) -> str:
    """Return which batches the file is for."""
    return "batches of any size" if len(trials) > 1 else "inputs of the example's shape"


def outputs_of(answer: Any) -> list[Tensor]:
    """Return the tensors of an answer, however nested."""
    return [leaf.detach().cpu() for leaf in pytree.tree_leaves(answer) if isinstance(leaf, Tensor)]


def _trial(model: nn.Module, inputs: Inputs) -> Trial:
    try:
        return Trial(inputs, outputs_of(model(*inputs)))
    except Exception as error:
        shapes = ", ".join(shape_text(tensor.shape) for tensor in inputs)
        reason = " ".join(str(error).split())[:300]
        raise ExportError(f"{type(model).__name__} cannot take an input of {shapes}: {reason}") from error


def _inputs(example: Tensor | Sequence[Tensor]) -> Inputs:
    inputs = (example,) if isinstance(example, Tensor) else tuple(example)
    if not inputs or not all(isinstance(tensor, Tensor) for tensor in inputs):
        raise ValueError("example_input must be a tensor or several: what the model is called with")
    return inputs


def varying(inputs: Inputs) -> tuple[Any, ...]:
    """Return which dimensions of the inputs count examples, as torch.export wants to be told."""
    batch = torch.export.Dim("batch")
    return tuple({0: batch} if _is_batch(tensor, inputs) else None for tensor in inputs)


def _is_batch(tensor: Tensor, inputs: Inputs) -> bool:
    return tensor.dim() > 0 and tensor.shape[0] == inputs[0].shape[0]


def _batches(inputs: Inputs) -> list[Inputs]:
    """Return the example with two rows at least (torch takes one for a constant), with one more, and a single row."""
    if not inputs[0].dim() or not inputs[0].shape[0]:
        raise ValueError("example_input has no batch: its first dimension must count examples, one at least")
    rows = max(2, inputs[0].shape[0])
    return [
        tuple(
            tensor[torch.arange(size) % tensor.shape[0]] if _is_batch(tensor, inputs) else tensor
            for tensor in inputs
        )
        for size in (rows, rows + 1, 1)
    ]
