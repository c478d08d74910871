"""The end of training: write the final model, measure it from its file, write summary and page."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.errors import TargetMissedError
from ..core.report import report
from ..core.selection.select import quota
from ..data import Splits
from ..files.sparse import save_sparse
from ..files.weights import read_weights, write_weights
from ..training.job import Progress
from ..training.paths import MODEL, REPORT, SPARSE_MODEL, SUMMARY
from ..training.process import Process
from ..training.records import write_json
from ..training.tasks import TASKS
from .build import build_method
from .folder import read_summary
from .spec import SparseSpec, Spec

__all__ = ["conclude", "reuse_summary", "write_pages"]


def conclude(
    spec: Spec,
    folder: Path,
    plain: nn.Module,
    weights: dict[str, torch.Tensor],
    layers: list[str] | None,
    splits: Splits,
    progress: Progress,
    steps: int,
    scores: dict[str, dict[str, float]],
) -> dict[str, Any]:
    """Write the final model, read it back, and return a summary of what is in the file."""
    path, task = folder / MODEL, TASKS[splits.task]
    about = {
        "task": splits.task,
        "model": spec.model.model_dump() | task.sizes(len(splits.classes), splits.shape),
        "data": {
            "name": splits.name,
            "shape": splits.shape,
            "classes": splits.classes,
            "options": spec.data.options,
            "fingerprint": splits.fingerprint,
        },
        "sparse": spec.sparse.model_dump(),
        "layers": layers,
        "scores": scores,
    }
    write_weights(path, weights, about)
    plain.load_state_dict(read_weights(path)[0])
    found = report(plain, task.blank(1, splits.shape), include=layers)
    if layers and found.zeros < _required_zeros(spec.sparse, found.numel):
        raise TargetMissedError(
            f"the best model has only {found.zeros:,} zeros in {found.numel:,} weights: fewer than asked for"
        )
    sparse = folder / SPARSE_MODEL
    size = None if spec.sparse.is_dense else save_sparse(plain, sparse, metadata=about)
    parameters = found.numel + found.other_parameters
    summary = {
        **scores,
        task.examples: {part: len(getattr(splits, part)) for part in ("train", "validation", "test")},
        "fingerprint": splits.fingerprint or None,
        "best_epoch": progress.best_epoch,
        "epochs": spec.recipe.total_epochs,
        "steps": steps,
        "seconds": round(progress.seconds, 3),
        "sparsity": found.sparsity,
        "method": spec.sparse.method.name,
        "target": None if spec.sparse.is_dense else spec.sparse.sparsity,
        "parameters": parameters,
        "active_parameters": parameters - found.zeros,
        "dense_macs": found.dense_macs,
        "sparse_macs": found.sparse_macs,
        "model": path.name,
        "model_bytes": path.stat().st_size,
        "sparse_model": None if size is None else sparse.name,
        "sparse_model_bytes": None if size is None else size.file_bytes,
        "sparse_model_bound": None if size is None else round(size.bound_bytes),
        "report": found.to_dict(),
    }
    write_json(folder / SUMMARY, summary)
    write_pages(folder)
    return summary


def _required_zeros(sparse: SparseSpec, weights: int) -> int:
    """Return how many zeros the final model must have at least."""
    asked = sparse.sparsity or 0.0
    return quota(weights, asked).zeros - build_method(sparse).slack(weights, asked)


def reuse_summary(folder: Path, process: Process) -> dict[str, Any] | None:
    """Return the summary if training in this folder is finished, and write pages that are missing; else None."""
    summary: dict[str, Any] | None = process.share(read_summary(folder))
    if summary is not None and process.is_first:
        write_pages(folder, only_missing=True)
    return summary


def write_pages(folder: Path, *, only_missing: bool = False) -> None:
    """Write the page and its charts; with `only_missing`, leave those that exist."""
    from .page import write_figures, write_page

    write_figures(folder, only_missing=only_missing)
    if not (only_missing and (folder / REPORT).exists()):
        write_page(folder)
