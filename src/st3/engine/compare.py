"""The same model in several engines, taking turns in one process; their answers are compared as well."""

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
from .rivals import Answer, in_torch, missing, onnx_runtime, openvino, write_onnx

__all__ = ["ENGINE", "TORCH", "Comparison", "Timing", "compare"]

ENGINE, TORCH = "st3 engine", "torch"
AT_MOST = 1e-4  # difference to torch's answer, as a part of its largest number
LEAST_ROUNDS = 3
PAUSE = 0.03  # seconds, for the threads of the engine before to fall asleep
# Seconds of calls after it that do not count: a processor that idled begins slowly, which short calls would meet and
# long ones not.
WARM_UP = 0.1


@dataclass(frozen=True)
class Timing:
    """One engine: the time of a call and how far its answer is from torch's."""

    name: str
    min_ms: float
    median_ms: float
    difference: float


@dataclass(frozen=True)
class Comparison:
    """All engines, and which could not take part."""

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
        """The fastest of the others."""
        return min((t for t in self.timings if t.name != ENGINE), key=lambda timing: timing.min_ms)

    @property
    def speed_up(self) -> tuple[float, float]:
        """How many times faster the engine is than the fastest of the others: by the minima and the medians."""
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
    """Time the model, in eval mode, in every engine that is installed; raise if the engine's answer is wrong.

    No round begins later than `seconds` after the first, but there are three at least.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        begin = time.perf_counter()
        compiled = compile_model(model, tuple(inputs), threads=threads, tune=tune)
        took = time.perf_counter() - begin
        contestants: dict[str, Answer] = {
            ENGINE: lambda: [leaf for leaf in tree_leaves(compiled(*inputs)) if isinstance(leaf, Tensor)],
            TORCH: in_torch(model, inputs),
        }
        others, absent = _others(model, inputs, threads)
        contestants |= others
        differences = _differences(contestants)
        taken = _take_turns(contestants, rounds, seconds)
    finally:
        torch.set_num_threads(before)
    timings = tuple(
        Timing(name, 1e3 * min(each), 1e3 * median(each), differences[name]) for name, each in taken.items()
    )
    return Comparison(timings, absent, threads, len(taken[ENGINE]), took, compiled)


def _others(
    model: nn.Module, inputs: Sequence[Tensor], threads: int
) -> tuple[dict[str, Answer], dict[str, str]]:
    """Return the engines that read an ONNX file, and why some do not take part."""
    found: dict[str, Answer] = {}
    absent: dict[str, str] = {}
    makers = {"ONNX Runtime": onnx_runtime, "OpenVINO": openvino}
    for name in makers:
        if lacking := missing(name):
            absent[name] = f"{lacking[0]} is not installed: pip install 'st3[bench]'"
    with tempfile.TemporaryDirectory(prefix="st3-bench-") as folder:
        if len(absent) == len(makers):
            return found, absent
        try:
            path = write_onnx(model, inputs, Path(folder))
        except Exception as error:  # whatever an exporter makes of somebody's model
            said = " ".join(str(error).split())[:160]
            return found, absent | dict.fromkeys(makers, f"torch.onnx cannot export the model: {said}")
        for name, make in makers.items():
            if name not in absent:
                found[name] = make(path, inputs, threads)
    return found, absent


def _differences(contestants: dict[str, Answer]) -> dict[str, float]:
    """Return how far each answer is from torch's; raise if the engine's is too far."""
    wanted = contestants[TORCH]()
    scale = max((float(tensor.abs().max()) for tensor in wanted if tensor.numel()), default=0.0) or 1.0
    found = {}
    for name, answer in contestants.items():
        pairs = zip(answer(), wanted, strict=True)
        found[name] = max(float((got - other).abs().max()) / scale for got, other in pairs)
    if not found[ENGINE] <= AT_MOST:
        raise RuntimeError(
            f"the engine's answer differs from torch's by {found[ENGINE]:.2g} of its largest number "
            f"(at most {AT_MOST:g} was expected); please report this with the model"
        )
    return found


def time_call(answer: Answer) -> float:
    """Return the seconds of one call, after a pause and calls that do not count."""
    time.sleep(PAUSE)
    begin = time.perf_counter()
    answer()
    while time.perf_counter() - begin < WARM_UP:
        answer()
    begin = time.perf_counter()
    answer()
    return time.perf_counter() - begin


def _take_turns(contestants: dict[str, Answer], rounds: int, limit: float) -> dict[str, list[float]]:
    """Return the seconds of each in each round: after a pause and calls that warm the processor, one that counts."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    gc.collect()
    gc.disable()
    try:
        first = time.perf_counter()
        for number in range(rounds):
            if number >= LEAST_ROUNDS and time.perf_counter() - first > limit:
                break
            for name, answer in contestants.items():
                seconds[name].append(time_call(answer))
    finally:
        gc.enable()
    return seconds
