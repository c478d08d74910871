"""Traces a model for export, and compares the answers of the exported file with the model's own."""

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
from .inputs import Axes, ExportError, Inputs, bind, choose_axes, other_sizes, torch_shapes

__all__ = ["ExportError", "ExportedFile", "Traced", "Trial", "list_tensors", "mute_torch", "trace"]

TOLERANCE = 1e-4  # largest difference of an output, relative to the largest output or to 1


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written, and how it was checked."""

    path: Path
    file_bytes: int
    kind: str
    checked_by: str | None  # None: not checked
    difference: float | None = None  # the largest, relative to the largest output or to 1
    remark: str = ""

    def __str__(self) -> str:
        if self.checked_by is None:
            check = f"not checked{self.remark}"
        else:
            check = f"{self.checked_by} gives the model's answers (largest difference {self.difference:.1e})"
        return f"{self.path}: {size_text(self.file_bytes)}, {self.kind}; {check}"


@dataclass(frozen=True)
class Trial:
    """One call of the model: its inputs and its answers."""

    inputs: Inputs
    outputs: list[Tensor]

    def difference(self, found: Sequence[Tensor], who: str, limit: float = TOLERANCE) -> float:
        """Return the largest relative difference from other answers; ExportError if it is above the limit."""
        shapes = [[tuple(tensor.shape) for tensor in tensors] for tensors in (self.outputs, found)]
        if shapes[0] != shapes[1]:
            raise ExportError(
                f"{who} gives answers of shapes {shapes[1]}, the model {shapes[0]}, for an input of {self.inputs}; "
                "no file was written"
            )
        worst = 0.0
        for wanted, other in zip(self.outputs, found, strict=True):
            if not wanted.numel():
                continue
            scale = max(1.0, float(wanted.double().nan_to_num(0, 0, 0).abs().max()))
            same = torch.isclose(wanted.double(), other.double(), rtol=0, atol=0, equal_nan=True)
            gap = float(torch.where(same, 0.0, (wanted.double() - other.double()).abs()).max()) / scale
            rounding = 4 * torch.finfo(wanted.dtype).eps if wanted.is_floating_point() else 0.0
            if not gap <= max(limit, rounding):
                raise ExportError(
                    f"{who} gives other answers than the model: for an input of {self.inputs} they differ by {gap:.2g} "
                    f"of the largest one (the limit is {max(limit, rounding):.1g}); no file was written"
                )
            worst = max(worst, gap)
        return worst


@dataclass(frozen=True)
class Traced:
    """A model as a program, the axes that may vary (argument -> axis -> Dim), and trials to check it with."""

    program: ExportedProgram
    axes: dict[str, dict[int, Any]]
    trials: list[Trial]

    @property
    def sizes_text(self) -> str:
        """For which inputs the program was traced."""
        names = dict.fromkeys(dim.__name__ for chosen in self.axes.values() for dim in chosen.values())
        return f"any size of {' and '.join(names)}" if names else "inputs of the example's shape"


def trace(model: nn.Module, example_input: Any, dynamic: Axes | None) -> Traced:
    """Trace the model in eval mode and record its answers; afterwards the model is as it was before."""
    plain = unwrap(model)
    inputs = bind(plain, example_input)
    axes = choose_axes(inputs, dynamic)
    modes = [(module, module.training) for module in plain.modules()]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            plain.eval()
            trials = [_call(plain, each) for each in other_sizes(inputs, axes)]
            return Traced(_export(plain, trials[0].inputs, axes), axes, trials)
        finally:
            for module, was_training in modes:
                module.training = was_training


def list_tensors(answer: Any) -> list[Tensor]:
    """Return the tensors of an answer, however nested."""
    return [leaf.detach().cpu() for leaf in pytree.tree_leaves(answer) if isinstance(leaf, Tensor)]


@contextlib.contextmanager
def mute_torch() -> Iterator[None]:
    """Suppress what torch logs and prints while it traces. Its errors say the same in one sentence.

    Messages of the model itself have been shown already, when it was called.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _call(model: nn.Module, inputs: Inputs) -> Trial:
    try:
        return Trial(inputs, list_tensors(model(*inputs.args, **inputs.kwargs)))
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ExportError(f"{type(model).__name__} cannot take an input of {inputs}: {reason}") from error


def _export(model: nn.Module, inputs: Inputs, axes: dict[str, dict[int, Any]]) -> ExportedProgram:
    try:
        with mute_torch():
            return torch.export.export(
                model, inputs.args, inputs.kwargs, dynamic_shapes=torch_shapes(inputs, axes), strict=False
            )
    except Exception as error:
        reason = " ".join(str(error).split())[:400]
        hint = ""
        if axes:
            hint = (
                "; limit an axis by giving a torch.export.Dim in dynamic, or say dynamic={} to fix all shapes"
            )
        raise ExportError(f"torch.export cannot trace {type(model).__name__}: {reason}{hint}") from error
