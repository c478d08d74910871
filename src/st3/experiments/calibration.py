"""A network in the engine in int8, calibrated on some of the examples that it was trained on."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..data import Splits
from ..training.sections import SettingsError

if TYPE_CHECKING:
    from ..engine import Compiled

__all__ = ["calibration_inputs", "compile_in_int8", "count_layers_in_int8"]

EXAMPLES, BATCH = 512, 64  # in all, and at a time


def calibration_inputs(splits: Splits) -> list[Tensor]:
    """Return examples from the whole training set, in batches, not augmented."""
    count = min(EXAMPLES, len(splits.train))
    chosen = torch.arange(count) * len(splits.train) // count
    return [splits.train.batch(indices, None)[0] for indices in chosen.split(BATCH)]


def compile_in_int8(
    network: nn.Module,
    example: Tensor,
    typical: list[Tensor],
    *,
    threads: int | None = None,
    tune: bool = True,
) -> "Compiled":
    """Return the compiled network; raise if none of its layers can be computed in int8."""
    from ..engine import compile as compile_engine  # the engine is imported when it is used

    try:
        compiled = compile_engine(network, example, calibration=typical, threads=threads, tune=tune)
    except ValueError as error:
        raise SettingsError("--int8", [str(error)]) from error
    if not count_layers_in_int8(compiled):
        raise SettingsError("--int8", ["no layer of this network can be computed in int8: leave it out"])
    return compiled


def count_layers_in_int8(compiled: "Compiled") -> int:
    from ..engine.program import Quantised

    return sum(isinstance(step, Quantised) for step in compiled.program)
