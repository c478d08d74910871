"""What passes from one cycle to the next, and what they come to together.

RUN/spec.json                  the run in cycles
RUN/cycle-00/, cycle-01/, ...  each cycle's own run: spec, records, checkpoints, model, summary, page
RUN/cycle-NN/raw.safetensors   the raw weights and batch-norm statistics that the next cycle begins with
RUN/summary.json               the last cycle's result, with the figures of all of them under "cycles"
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ..files.weights import read_weights
from .cycles import cycle_folder

__all__ = ["RAW", "carried", "summed_up"]

RAW = "raw.safetensors"
FIGURES = ("sparsity", "target", "test", "validation", "best_epoch", "epochs", "steps", "seconds")
SIZES = ("active_parameters", "sparse_macs", "model_bytes", "sparse_model_bytes")
FILES = ("model", "sparse_model")


def carried(model: nn.Module, run: Path, number: int) -> nn.Module:
    """Return a copy of the network as that cycle begins: at first as it is, later as the cycle before has left it."""
    begun = copy.deepcopy(model)
    if number:
        begun.load_state_dict(read_weights(run / cycle_folder(number - 1) / RAW)[0])
    return begun


def summed_up(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last cycle's summary as that of the whole run: times are sums, epochs count from the first cycle."""
    last = summaries[-1]
    before = summaries[:-1]
    cycles = [
        {"cycle": number, "folder": cycle_folder(number)} | {key: one[key] for key in (*FIGURES, *SIZES)}
        for number, one in enumerate(summaries)
    ]
    files = {key: f"{cycle_folder(len(before))}/{last[key]}" for key in FILES}
    sums = {key: sum(one[key] for one in summaries) for key in ("epochs", "steps")}
    return {
        **last,
        **files,
        **sums,
        "seconds": round(sum(one["seconds"] for one in summaries), 3),
        "best_epoch": last["best_epoch"] + sum(one["epochs"] for one in before),
        "cycles": cycles,
    }
