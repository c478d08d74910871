"""Time a model in several engines, interleaved in one process, and compare their outputs."""

import gc
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from .compiled import Compiled
from .compiled import compile as compile_model
from .rivals import Run, missing_packages, onnx_runtime, openvino, torch_engine, write_onnx

__all__ = ["ENGINE", "TORCH", "Comparison", "Timing", "compare"]

ENGINE, TORCH = "st3 engine", "torch"
TOLERANCE = 1e-4  # difference from torch's output, relative to its largest value
MIN_ROUNDS = 3
PAUSE = 0.03  # seconds in which the threads of the previous engine go to sleep
# Seconds of untimed calls after the pause: an idle processor starts slowly, which would penalise short calls only.
WARM_UP = 0.1


@dataclass(frozen=True)
class Timing:
    """One engine: the time of a call and the difference of its output from torch's."""

    name: str
    min_ms: float
    median_ms: float
    difference: float


@dataclass(frozen=True)
class Comparison:
    """The timings of all engines, and why some are absent."""

    timings: tuple[Timing, ...]
    absent: dict[str, str]
    threads: int
    rounds: int
    compile_seconds: float
    compiled: Compiled = field(repr=False)

    def __getitem__(self, name: str) -> Timing:
        return next(timing for timing in self.timings if timing.name == name)

    @property
    def rival(self) -> Timing:
        """The fastest of the other engines."""
        return min((t for t in self.timings if t.name != ENGINE), key=lambda timing: timing.min_ms)

    @property
    def speed_up(self) -> tuple[float, float]:
        """The time of the fastest other engine divided by the engine's: minima and medians."""
        own, rival = self[ENGINE], self.rival
        return rival.min_ms / own.min_ms, rival.median_ms / own.median_ms

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        least, middle = self.speed_up
        return {
            "engines": [asdict(timing) for timing in self.timings],
            "absent": self.absent,
            "rival": self.rival.name,
            "speed_up": {"min": round(least, 3), "median": round(middle, 3)},
            "threads": self.threads,
            "rounds": self.rounds,
            "compile_seconds": round(self.compile_seconds, 2),
        }


def compare(
    model: nn.Module,
    inputs: Sequence[Tensor],
    *,
    threads: int = 1,
    rounds: int = 10,
    seconds: float = math.inf,
    tune: bool = True,
) -> Comparison:
    """Time the model, in eval mode, in every engine that is installed; raise if the engine's output is wrong.

    No round starts later than `seconds` after the first, but there are at least three.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        begin = time.perf_counter()
        compiled = compile_model(model, tuple(inputs), threads=threads, tune=tune)
        took = time.perf_counter() - begin
        engines: dict[str, Run] = {
            ENGINE: lambda: [leaf for leaf in tree_leaves(compiled(*inputs)) if isinstance(leaf, Tensor)],
            TORCH: torch_engine(model, inputs),
        }
        others, absent = _other_engines(model, inputs, threads)
        engines |= others
        differences = _differences(engines)
        taken = _take_turns(engines, rounds, seconds)
    finally:
        torch.set_num_threads(before)
    timings = tuple(
        Timing(name, 1e3 * min(each), 1e3 * median(each), differences[name]) for name, each in taken.items()
    )
    return Comparison(timings, absent, threads, len(taken[ENGINE]), took, compiled)


def _other_engines(
    model: nn.Module, inputs: Sequence[Tensor], threads: int
) -> tuple[dict[str, Run], dict[str, str]]:
    """Return the engines that read ONNX files, and why some are absent."""
    found: dict[str, Run] = {}
    absent: dict[str, str] = {}
    makers = {"ONNX Runtime": onnx_runtime, "OpenVINO": openvino}
    for name in makers:
        if lacking := missing_packages(name):
            absent[name] = f"{lacking[0]} is not installed: pip install 'st3[bench]'"
    with tempfile.TemporaryDirectory(prefix="st3-bench-") as folder:
        if len(absent) == len(makers):
            return found, absent
        try:
            path = write_onnx(model, inputs, Path(folder))
        except Exception as error:  # an exporter may fail in any way
            reason = " ".join(str(error).split())[:160]
            return found, absent | dict.fromkeys(makers, f"torch.onnx cannot export the model: {reason}")
        for name, make in makers.items():
            if name not in absent:
                found[name] = make(path, inputs, threads)
    return found, absent


def _differences(engines: dict[str, Run]) -> dict[str, float]:
    """Return the difference of each output from torch's; raise if the engine's is too large."""
    wanted = engines[TORCH]()
    scale = max((float(tensor.abs().max()) for tensor in wanted if tensor.numel()), default=0.0) or 1.0
    found = {}
    for name, run in engines.items():
        pairs = zip(run(), wanted, strict=True)
        found[name] = max(float((got - other).abs().max()) / scale for got, other in pairs)
    if not found[ENGINE] <= TOLERANCE:
        raise RuntimeError(
            f"the engine's output differs from torch's by {found[ENGINE]:.2g} of its largest value "
            f"(tolerance {TOLERANCE:g}); please report this with the model"
        )
    return found


def time_call(run: Run) -> float:
    """Return the seconds of one call, after a pause and a warm-up."""
    time.sleep(PAUSE)
    begin = time.perf_counter()
    run()
    while time.perf_counter() - begin < WARM_UP:
        run()
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _take_turns(engines: dict[str, Run], rounds: int, limit: float) -> dict[str, list[float]]:
    """Return the seconds of each engine in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    gc.collect()
    gc.disable()
    try:
        first = time.perf_counter()
        for number in range(rounds):
            if number >= MIN_ROUNDS and time.perf_counter() - first > limit:
                break
            for name, run in engines.items():
                seconds[name].append(time_call(run))
    finally:
        gc.enable()
    return seconds
