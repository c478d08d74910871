"""Measure a stored model, from its file alone."""

from pathlib import Path
from typing import Any

import torch

from ..core.report import report
from ..data import Batches, Examples, Splits
from ..training.evaluate import measure
from ..training.process import join_processes
from ..training.scores import class_scores
from ..training.sections import SettingsError
from ..training.tasks import TASKS
from .build import build_model_for, build_splits
from .calibration import calibration_inputs, compile_in_int8, count_layers_in_int8
from .checks import check_device
from .stored_model import StoredModel, load_into, read_stored_model

__all__ = ["evaluate_stored"]

SPLITS = ("test", "validation", "train")


def evaluate_stored(
    path: str | Path,
    *,
    data: str | None = None,
    data_dir: str | Path | None = None,
    model: str | None = None,
    split: str = "test",
    batch_size: int = 500,
    device: str = "auto",
    int8: bool = False,
) -> dict[str, Any]:
    """Return loss, score and sparsity of the model in a run's folder or in a file.

    Network and data are those of the run. Give `data` and `model` for a file that does not name them, or to measure on
    other data. Nothing is augmented. With `int8` the engine computes it, calibrated on training examples.
    """
    check_device(device)
    if int8:
        if device not in ("auto", "cpu"):
            raise SettingsError("--int8", [f"the engine computes on the CPU: leave out --device {device}"])
        device = "cpu"
    stored = read_stored_model(Path(path))
    made_by = stored.made_by(model)
    measured_on = stored.data_in(data_dir, data)
    if missing := [name for name, spec in (("model", made_by), ("data", measured_on)) if spec is None]:
        faults = [f"it does not say which {name} it is for: add --{name} NAME" for name in missing]
        raise SettingsError(str(stored.path), faults)
    assert made_by is not None
    assert measured_on is not None
    splits = build_splits(measured_on)
    _check_classes(stored, splits)
    task, network = TASKS[splits.task], build_model_for(made_by, splits)
    load_into(network, stored, made_by.name)
    sparsity = report(network, include=stored.layers).sparsity
    with join_processes(device) as process:
        network = network.to(process.device)
        examples = _part(splits, split)
        place = {"rank": process.rank, "ranks": process.ranks}
        batches = Batches(examples.to(process.device), batch_size, seed=None, device=process.device, **place)
        compiled = None
        if int8:
            example, _ = examples.batch(torch.arange(min(batch_size, len(examples))), None)
            compiled = compile_in_int8(network, example, calibration_inputs(splits), tune=False)
        answer = compiled or network
        measured = measure(task, network, lambda batch: class_scores(answer(batch)).float(), batches, process)
    return {
        "file": str(stored.path),
        "model": made_by.name,
        "data": splits.name,
        "split": split,
        task.examples: len(examples),
        **measured,
        "sparsity": sparsity,
        **({"layers_in_int8": count_layers_in_int8(compiled)} if compiled else {}),
    }


def _check_classes(stored: StoredModel, splits: Splits) -> None:
    """Raise if the model was trained for other classes: its scores would mean something else."""
    known, found = stored.classes, splits.classes
    if known is None or known == found:
        return
    words = TASKS[splits.task].class_words
    if len(known) != len(found):
        difference = f"{len(known)} {words}, but {splits.name!r} has {len(found)}"
    else:
        number = next(n for n, (old, new) in enumerate(zip(known, found, strict=True)) if old != new)
        difference = (
            f"other {words}: number {number} is {known[number]!r}, in {splits.name!r} {found[number]!r}"
        )
    raise SettingsError(str(stored.path), [f"the model was trained for {difference}"])


def _part(splits: Splits, split: str) -> Examples:
    if split not in SPLITS:
        raise SettingsError("--split", [f"must be one of {', '.join(SPLITS)}, got {split!r}"])
    examples: Examples = getattr(splits, split)
    return examples
