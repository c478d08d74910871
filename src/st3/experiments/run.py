"""A run: the parts that its protocol asks for, one after the other, in a folder that is checked and locked."""

import contextlib
import copy
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data import Splits
from ..training.listener import Listener
from ..training.optimizer import build_optimizer
from ..training.paths import SUMMARY
from ..training.process import Process, join_processes
from ..training.records import write_json
from ..training.sections import SettingsError
from ..training.stop import StopRequest
from .build import build_model_for, build_sparsifier, build_splits, check_scores
from .checks import contradictions
from .conclusion import reuse_summary, write_pages
from .folder import check_folder, claim_folder, read_summary
from .one_part import Session, train_part
from .protocols import PROTOCOLS, Part, Protocol
from .spec import ModelSpec, Spec

__all__ = ["ProcessLostError", "rehearse", "train"]


class ProcessLostError(RuntimeError):
    """Another process of the run has died."""


def train(
    spec: Spec,
    folder: str | Path,
    *,
    resume: bool = False,
    model: nn.Module | None = None,
    splits: Splits | None = None,
    listeners: Sequence[Listener] = (),
    keep: int = 2,
    minutes: float = 20.0,
) -> dict[str, Any]:
    """Train the run that `spec` describes into `folder` and return its summary; `resume` continues where it stopped.

    A `model` or `splits` given here replace those that the spec names. Under `torchrun` every process calls this, and
    the first one writes. A checkpoint is written after every epoch, and every `minutes` within one; the newest `keep`
    stay.
    """
    folder = Path(folder)
    if spec.part is not None:
        raise SettingsError(str(folder), contradictions(spec))
    with join_processes(spec.machine.device) as process, _name_lost_processes(process):
        _check_device(spec, process)
        if model is not None and ":" not in spec.model.name:  # a catalogue name would be wrong
            spec = spec.model_copy(update={"model": ModelSpec(name=f"<{type(model).__name__}>")})
        check_folder(spec, folder, resume, process)
        if splits is None:
            splits = _read_splits(spec, process)
        torch.manual_seed(spec.seeds.init)
        if model is None:
            model = build_model_for(spec.model, splits)
        check_scores(model, spec.model.name, splits)
        protocol = PROTOCOLS[spec.protocol.name](**spec.protocol.arguments)
        parts = protocol.parts(spec)
        rehearse(parts[-1].spec, model, splits)
        with claim_folder(spec, folder, resume, process), StopRequest() as stop:
            session = Session(process, splits, listeners, keep, minutes, stop)
            return _train_parts(protocol, parts, folder, model, session)


def _train_parts(
    protocol: Protocol, parts: Sequence[Part], folder: Path, model: nn.Module, session: Session
) -> dict[str, Any]:
    """Train one part after the other, and sum them up."""
    process, summaries = session.process, []
    if (done := reuse_summary(folder, process)) is not None:
        return done
    for number, part in enumerate(parts):
        place = folder / part.folder
        if process.is_first and read_summary(place) is None:
            sparse = part.spec.sparse
            target = None if sparse.is_dense else sparse.sparsity
            for listener in session.listeners:
                listener.on_part(part.title, part.folder, number, len(parts), target)
        begun = model if part is parts[-1] else copy.deepcopy(model)
        protocol.hand_over(begun, folder, number)
        summaries.append(train_part(part.spec, place, begun, session))
    if protocol.trains_itself:
        return summaries[-1]
    summary = protocol.sum_up(parts, summaries)
    if process.is_first:
        write_json(folder / SUMMARY, summary)
        write_pages(folder)
    process.wait()
    return summary


def rehearse(spec: Spec, model: nn.Module, splits: Splits) -> None:
    """Attach the sparsifier to a copy: what that raises must not come up after earlier parts were trained."""
    twin = copy.deepcopy(model)
    optimizer = build_optimizer(twin, spec.recipe.optimizer, spec.sparse.sparsity or 0.0)
    batches = -(-len(splits.train) // spec.recipe.batch_size)
    sparsifier = build_sparsifier(spec, twin, optimizer, batches)
    if sparsifier is not None:
        sparsifier.detach()


def _check_device(spec: Spec, process: Process) -> None:
    if spec.machine.sharded and process.ranks == 1:
        raise ValueError(
            "sharded weights need several processes: torchrun --nproc-per-node 2 -m st3 -- train ..."
        )
    if spec.machine.precision == "float16" and process.device.type == "cpu":
        raise ValueError("precision float16 needs a CUDA device, and there is none: use bfloat16 or float32")


def _read_splits(spec: Spec, process: Process) -> Splits:
    """Read the data; if they are to be downloaded, one process does that before the others read them."""
    if process.ranks == 1 or not spec.data.download:
        return build_splits(spec.data)
    splits = build_splits(spec.data) if process.is_first else None
    process.wait()
    return build_splits(spec.data) if splits is None else splits


@contextlib.contextmanager
def _name_lost_processes(process: Process) -> Iterator[None]:
    """Report the death of another process in plain words, instead of what its socket did."""
    try:
        yield
    except RuntimeError as error:
        signs = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out waiting")
        if process.ranks > 1 and any(sign in str(error).lower() for sign in signs):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's: this message must be printed first
            raise ProcessLostError(
                f"process {process.rank} of {process.ranks} lost its connection to another one, which seems to have "
                f"died: look for its message, then add --resume ({str(error).strip().splitlines()[0][:200]})"
            ) from error
        raise
