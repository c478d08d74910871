"""Time a model in several engines, interleaved in one process, and compare their outputs."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ...engine.compiled import Compiled
from ...engine.compiled import compile as compile_model
from ...processor import instruction_sets, processor
from .rivals import first_words, start_rivals
from .runtimes import Run, torch_engine

__all__ = ["ENGINE", "ENGINE_INT8", "TORCH", "Comparison", "Timing", "compare", "time_call"]

ENGINE, ENGINE_INT8, TORCH = "st3 engine float32", "st3 engine int8", "torch float32"
TOLERANCE = 1e-4  # difference from torch's output, relative to its largest value
MIN_ROUNDS = 3
PAUSE = 0.03  # seconds in which the threads of the previous engine go to sleep
# Seconds of untimed calls after the pause: an idle processor starts slowly, which would penalise short calls only.
WARM_UP = 0.1


@dataclass(frozen=True)
class Timing:
    """One engine: the time of a call and the difference of its output from torch's."""

    name: str
    precision: str
    min_ms: float
    median_ms: float
    difference: float

    @property
    def is_own(self) -> bool:
        return self.name in (ENGINE, ENGINE_INT8)


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

    def rival(self, precision: str | None = None) -> Timing:
        """Return the fastest of the other engines, of one precision or of any."""
        others = (t for t in self.timings if not t.is_own and precision in (None, t.precision))
        return min(others, key=lambda timing: timing.min_ms)

    @property
    def in_int8(self) -> Timing | None:
        """The engine in int8, if it was measured."""
        return next((timing for timing in self.timings if timing.name == ENGINE_INT8), None)

    def speed_up(self, rival: Timing, own: Timing | None = None) -> tuple[float, float]:
        """Return the rival's time divided by the engine's, by default in float32: minima and medians."""
        own = own or self[ENGINE]
        return rival.min_ms / own.min_ms, rival.median_ms / own.median_ms

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; "rival" is the fastest one in float32, then in any precision."""
        return {
            "engines": [asdict(timing) for timing in self.timings],
            "absent": self.absent,
            **self._against(self.rival("float32")),
            "any_precision": self._against(self.rival()),
            **({"in_int8": self._against(self.rival(), self.in_int8)} if self.in_int8 else {}),
            "threads": self.threads,
            "rounds": self.rounds,
            "compile_seconds": round(self.compile_seconds, 2),
            "processor": processor(),
            "instruction_sets": instruction_sets(),
        }

    def _against(self, rival: Timing, own: Timing | None = None) -> dict[str, Any]:
        least, middle = self.speed_up(rival, own)
        return {"rival": rival.name, "speed_up": {"min": round(least, 3), "median": round(middle, 3)}}


def compare(
    models: Sequence[nn.Module],
    inputs: Sequence[Tensor],
    *,
    threads: int = 1,
    rounds: int = 10,
    seconds: float = math.inf,
    tune: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Comparison]:
    """Time models in eval mode in every engine that is installed; raise if the engine's output is wrong.

    Several models are one network with other zeros. Those do not change the speed of other engines, which therefore
    run the first model only; all take turns in the same rounds.

    No round starts later than `seconds` after the first, but there are at least three. On a busy machine
    `clock=time.process_time` counts the seconds of this process alone, all its threads together.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        own = [_start_engine(model, inputs, threads, tune) for model in models]
        fault = _why_not_int8(models[0])
        try:
            in_int8 = [] if fault else [_start_engine(model, inputs, threads, tune, True) for model in models]
        except ValueError as error:
            in_int8, fault = [], first_words(error)
        others, absent = start_rivals(models[0], inputs, threads)
        absent |= {ENGINE_INT8: fault} if fault else {}
        engines = {TORCH: ("float32", torch_engine(models[0], inputs)), **others}
        wanted = engines[TORCH][1]()
        differences = {name: difference(run(), wanted) for name, (_, run) in engines.items()}
        runs = {f"{ENGINE} {number}": each.run for number, each in enumerate(own)}
        runs |= {f"{ENGINE_INT8} {number}": each.run for number, each in enumerate(in_int8)}
        taken = _take_turns(runs | {name: run for name, (_, run) in engines.items()}, rounds, seconds, clock)
    finally:
        torch.set_num_threads(before)
    shared = [_timing(name, engines[name][0], taken[name], differences[name]) for name in engines]
    found = []
    for number, each in enumerate(own):
        timings = [_timing(ENGINE, "float32", taken[f"{ENGINE} {number}"], each.difference)]
        if in_int8:
            times = taken[f"{ENGINE_INT8} {number}"]
            timings.append(_timing(ENGINE_INT8, "int8", times, in_int8[number].difference))
        done = len(taken[f"{ENGINE} {number}"])
        all_timings = (*timings, *shared)
        found.append(Comparison(all_timings, absent, threads, done, each.compile_seconds, each.compiled))
    return found


def _why_not_int8(model: nn.Module) -> str:
    """Return why the engine is not measured in int8; empty if it is."""
    if "avx512_vnni" not in instruction_sets():
        return "this processor has no instructions for it (AVX-512 VNNI)"
    layers = nn.Conv1d | nn.Conv2d | nn.Linear
    has_layers = any(isinstance(module, layers) for module in model.modules())
    return "" if has_layers else "it computes convolutions and linear layers in int8, and the model has none"


@dataclass(frozen=True)
class _Started:
    """One model in the engine."""

    compiled: Compiled
    compile_seconds: float
    run: Run
    difference: float


def _start_engine(
    model: nn.Module, inputs: Sequence[Tensor], threads: int, tune: bool, is_int8: bool = False
) -> _Started:
    begin = time.perf_counter()
    typical = [tuple(inputs)] if is_int8 else None
    compiled = compile_model(model, tuple(inputs), threads=threads, tune=tune, calibration=typical)
    took = time.perf_counter() - begin

    def run() -> list[Tensor]:
        return _tensors(compiled(*inputs))

    found = difference(run(), torch_engine(model, inputs)())
    if not is_int8:
        _check(found)
    return _Started(compiled, took, run, found)


def _timing(name: str, precision: str, seconds: list[float], differs: float) -> Timing:
    return Timing(name, precision, 1e3 * min(seconds), 1e3 * median(seconds), differs)


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def difference(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Return the largest difference of two outputs, relative to the largest value that is wanted."""
    far = [_largest(a.double() - b.double()) for a, b in zip(found, wanted, strict=True)]
    return _largest(torch.tensor(far)) / (_largest(torch.tensor([_largest(b) for b in wanted])) or 1.0)


def _largest(values: Tensor) -> float:
    """Return the largest magnitude, NaN if there is one."""
    return float(values.double().abs().max()) if values.numel() else 0.0


def _check(found: float) -> None:
    if not found <= TOLERANCE:
        raise RuntimeError(
            f"the engine's output differs from torch's by {found:.2g} of its largest value "
            f"(tolerance {TOLERANCE:g}); please report this with the model"
        )


def time_call(run: Run, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of one call, after a pause and a warm-up."""
    time.sleep(PAUSE)
    begin = time.perf_counter()
    run()
    while time.perf_counter() - begin < WARM_UP:
        run()
    begin = clock()
    run()
    return clock() - begin


def _take_turns(
    engines: dict[str, Run], rounds: int, limit: float, clock: Callable[[], float]
) -> dict[str, list[float]]:
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
                seconds[name].append(time_call(run, clock))
    finally:
        gc.enable()
    return seconds
