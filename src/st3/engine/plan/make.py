"""Make the plan of a program: lower its steps, lay out the memory, choose kernels, assemble."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .. import native
from ..program import Attention, Conv, InTorch, Linear, Lookup, Place, Program, Shape, Softmax, Step
from .assemble import Alternative, Assembly, Operation, Plan
from .lower import lower
from .pack import count_nonzeros
from .planner import Planner
from .tune import Tuner
from .values import SLACK, PlainArray, assign_offsets

__all__ = ["Choice", "Planned", "Segment", "TorchStep", "make_plan"]

MAX_VALUE_BYTES = 1024 * 1024  # of a part of a batch: two values of this size fit the L2 cache
# How alternatives are measured: (within this factor of the shortest time so far, this many runs each).
ROUNDS = ((float("inf"), 2), (1.3, 3), (1.1, 6))
ROUNDS_SECONDS = 0.5  # no further round after this long: times of long runs vary little
WHOLE = (InTorch, Attention, Lookup, Place)  # steps that know the size of the batch
FLUSH_FLOATS = 1 << 20  # more than the L2 cache holds


@dataclass(frozen=True)
class Choice:
    """The kernel chosen for one step.

    `milliseconds` holds the measured time by kernel (of some outputs, if the layer is very large); it is empty if the
    choice was estimated or cached. Two steps that are computed as one are measured as one; `fused` names the other
    step. `steps` are the plan's steps that compute it.
    """

    name: str
    kind: str
    kernel: str
    milliseconds: dict[str, float] = field(default_factory=dict)
    weights: int = 0
    nonzeros: int = 0
    macs: int = 0
    fused: str = ""
    steps: range = range(0)


@dataclass(frozen=True)
class TorchStep:
    """A step that torch computes: it reads and writes plain arrays."""

    operation: Operation


Segment = range | TorchStep  # steps of the plan that one call runs, or a step in torch


@dataclass(frozen=True)
class Planned:
    """A plan, and what belongs to it on the side of Python."""

    kernels: native.Kernels
    plan: Plan
    inputs: dict[str, Shape]
    outputs: tuple[Shape, ...]
    states: tuple[Shape, ...]
    segments: tuple[Segment, ...]
    choices: tuple[Choice, ...]

    @property
    def is_whole(self) -> bool:
        """Whether kernels compute everything."""
        return not any(isinstance(segment, TorchStep) for segment in self.segments)


def make_plan(
    program: Program,
    threads: int = 1,
    tuner: Tuner | None = None,
    isa: str | None = None,
    store: native.Store | None = None,
) -> Planned:
    """Return the plan of a program for an instruction set, by default the best that this processor has.

    Without a tuner, kernels are chosen by estimates. Arrays are kept in the store, which may hold those of other plans.
    A batch whose values do not fit the cache is computed in parts; with enough parts, each thread computes its own.
    """
    kernels = native.kernels(isa)
    part = batch_part(program)
    parts = _batch(program) // _batch(part) if part is not program else 1
    planner = Planner(part, kernels, 1 if parts >= threads else threads)
    for step in part:
        lower(step, planner)
    _deliver_outputs(planner)
    arena = assign_offsets(planner.buffers) + SLACK
    names = (*part.arguments, *part.results, *part.states)
    slots = [math.prod(part.shapes[name]) for name in names]
    chosen = _choose(planner, arena, len(slots), tuner)

    assembly = Assembly(store)
    segments: list[Segment] = []
    choices: dict[str, Choice] = {step.name: _choice(step, part, "torch") for step in part}
    for operation, (alternative, measured) in zip(planner.operations, chosen, strict=True):
        if operation.torch:
            segments.append(TorchStep(operation))
            continue
        first = len(assembly.steps)
        made = [operation.make(assembly)] if operation.make else alternative.make(assembly)  # type: ignore[union-attr]
        for structure, tasks in made:
            assembly.add_step(structure, tasks)
        own = range(first, len(assembly.steps))
        if segments and isinstance(segments[-1], range):
            segments[-1] = range(segments[-1].start, own.stop)
        else:
            segments.append(own)
        choices |= _describe(operation, alternative, measured, own, part)
    scratch = max(
        [each.scratch for each, _ in chosen if each] + [each.scratch for each in planner.operations]
    )
    return Planned(
        kernels,
        assembly.finish(arena, scratch, slots, parts, threads),
        {name: program.shapes[name] for name in program.arguments},
        tuple(program.shapes[name] for name in program.results),
        tuple(program.shapes[name] for name in program.states),
        tuple(segments),
        tuple(choices.values()),
    )


def _batch(program: Program) -> int:
    return program.shapes[program.inputs[0]][0]


def batch_part(program: Program) -> Program:
    """Return the program for the largest part of the batch whose values fit the cache.

    This is the program itself if it fits, or if a step may depend on several images at once.
    """
    sizes = {shape[0] if shape else 0 for shape in program.shapes.values()}
    if len(sizes) != 1 or program.states or not any(isinstance(step, Conv) for step in program):
        return program
    if any(isinstance(step, WHOLE) or (isinstance(step, Softmax) and step.axis == 0) for step in program):
        return program
    (batch,) = sizes
    largest = max(4 * math.prod(shape[1:]) for shape in program.shapes.values())
    fitting = [
        size for size in range(1, batch + 1) if batch % size == 0 and size * largest <= MAX_VALUE_BYTES
    ]
    part = max(fitting, default=1)
    if part == batch:
        return program
    return replace(program, shapes={name: (part, *shape[1:]) for name, shape in program.shapes.items()})


def _deliver_outputs(planner: Planner) -> None:
    """Emit the moves of all results and states to their tensors, unless a step has written there."""
    program = planner.program
    for number, name in enumerate(program.results):
        _deliver(planner, name, planner.result(number))
    homes = {state: PlainArray(None, planner.slots[state]) for state in program.states}
    kept = {
        state: name for state, name in program.states.items() if planner.values[name].plain != homes[state]
    }
    for name in kept.values():
        value = planner.values[name]
        if (
            value.plain and value.plain.slot >= 0
        ):  # another state, perhaps: it may have changed when this one is written
            copy = PlainArray(planner.buffer(value.size))
            planner.emit(planner.moves.copy(name, value.plain, copy, value.size))
            value.plain = copy
    for state, name in kept.items():
        _deliver(planner, name, homes[state])


def _deliver(planner: Planner, name: str, target: PlainArray) -> None:
    value = planner.values[name]
    if value.plain is None:
        planner.unpack(name, target)
    elif value.plain != target:
        planner.emit(planner.moves.copy(name, value.plain, target, value.size))


# ---------------------------------------------------------------- the choice of kernels

Chosen = tuple[Alternative | None, dict[str, float]]  # the alternative, and what was measured


def _choose(planner: Planner, arena: int, slots: int, tuner: Tuner | None) -> list[Chosen]:
    """Return the fastest alternative of every operation that has some, by the tuner's measurements or by estimates."""
    timer = _Timer(planner, arena, slots) if tuner else None
    found: list[Chosen] = []
    for operation in planner.operations:
        if operation.tune is None:
            found.append((None, {}))
        elif tuner and timer:
            key = f"{operation.tune.signature} t{planner.threads} {planner.kernels.name}"
            found.append(tuner.choose(key, operation.tune.alternatives(), timer))
        else:
            found.append((min(operation.tune.alternatives(), key=lambda each: each.cost), {}))
    return found


class _Timer:
    """Times alternatives in a session of their own."""

    def __init__(self, planner: Planner, arena: int, slots: int) -> None:
        self.planner, self.arena, self.slots = planner, arena, slots
        self.session: native.Session | None = None
        self.other = np.zeros(FLUSH_FLOATS, np.float32)

    def __call__(self, candidates: list[Alternative]) -> list[float]:
        """Return the shortest time of each in milliseconds; runs are interleaved, so that clock changes affect all.

        The cache is flushed before each run, as other layers do in the network.
        """
        session = self._session(max(each.scratch for each in candidates))
        plans = [self._plan(each) for each in candidates]
        times = [float("inf")] * len(plans)
        begin = time.perf_counter()
        for near, runs in ROUNDS:
            promising = [number for number, taken in enumerate(times) if taken <= near * min(times)]
            for number in promising * runs:
                self.other += 1
                times[number] = min(times[number], session.time(plans[number]))
            if time.perf_counter() - begin > ROUNDS_SECONDS:
                break
        return times

    def _session(self, scratch: int) -> native.Session:
        """Return the session, with at least this much scratch memory."""
        if self.session is None or self.session.plan.scratch < scratch:
            empty = Assembly().finish(self.arena, scratch, [0] * self.slots, threads=self.planner.threads)
            self.session = native.Session(self.planner.kernels, empty)
        return self.session

    def _plan(self, alternative: Alternative) -> Plan:
        assembly = Assembly()
        for structure, tasks in (alternative.sample or alternative.make)(assembly):
            assembly.add_step(structure, tasks)
        return assembly.finish()


# ---------------------------------------------------------------- what was chosen, for the report


def _describe(
    operation: Operation,
    alternative: Alternative | None,
    measured: dict[str, float],
    steps: Sequence[int],
    program: Program,
) -> dict[str, Choice]:
    """Return the choices for the step or the two steps that an operation computes."""
    step, before = operation.step, operation.before
    if step is None:
        return {}
    own = range(steps[0], steps[-1] + 1)
    best: dict[str, float] = {}
    for label, ms in measured.items():
        kernel = label.split()[0]
        best[kernel] = min(ms, best.get(kernel, math.inf))
    kernel = alternative.kernel if alternative else operation.kernel
    if before is None:
        return {step.name: replace(_choice(step, program, kernel), milliseconds=best, steps=own)}
    second = alternative.second_kernel if alternative else kernel
    first = replace(_choice(before, program, kernel), milliseconds=best, fused=step.name, steps=own)
    return {before.name: first, step.name: replace(_choice(step, program, second), fused=before.name)}


def _choice(step: Step, program: Program, kernel: str) -> Choice:
    """Return the choice of a kernel for a step, with its counts of weights and multiply-adds."""
    kind = type(step).__name__
    if not isinstance(step, Conv | Linear):
        return Choice(step.name, kind, "view" if kind == "Reshape" else kernel)
    nonzeros = count_nonzeros(step.weight)
    shape = program.shapes[step.target]
    outputs = math.prod(shape) // shape[step.AXIS]
    return Choice(
        step.name, kind, kernel, weights=step.weight.size, nonzeros=nonzeros, macs=nonzeros * outputs
    )
