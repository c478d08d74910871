"""Run a program: with compiled kernels, or step by step in torch where no library was built."""

import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NoReturn, Protocol

import torch
from torch import Tensor

from . import native
from .plan.make import Choice, Planned, TorchStep, make_plan
from .plan.tune import Tuner, cache_file
from .plan.values import PlainArray
from .program import Program, Shape
from .reference import evaluate, evaluate_all, interpret

__all__ = ["NoKernelsWarning", "Runner", "Runtime", "TorchRuntime", "make_runner", "shortest_milliseconds"]

REPEATS = 3  # of a time in the report


class NoKernelsWarning(UserWarning):
    """The engine runs without its compiled kernels: correct, but no faster than torch."""


class Runner(Protocol):
    """Runs one program."""

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the program's outputs; they belong to the caller."""

    def choices(self) -> Sequence[Choice]:
        """Return the kernel chosen for every step."""

    def step_milliseconds(self, program: Program) -> dict[str, float]:
        """Return the time of each step now; two fused steps have one time, under the first one's name."""


class Runtime:
    """Runs a program with the compiled kernels; steps without a kernel run in torch.

    Any number of calls may run at once. Each has a session of its own, which is kept for later calls; the weights are
    shared. With `tune`, kernels are measured, and the results cached in the user's cache folder unless `cache=False`.
    `isa` selects an instruction set other than the best. Every call changes the `states`, so calls of a program with
    states must not overlap.
    """

    def __init__(
        self,
        program: Program,
        threads: int = 1,
        tune: bool = True,
        isa: str | None = None,
        cache: bool = True,
        store: native.Store | None = None,
        states: Sequence[Tensor] = (),
    ) -> None:
        tuner = Tuner(cache_file() if cache else None) if tune else None
        self.use(make_plan(program, threads, tuner, isa, store), states)
        if tuner:
            tuner.save()

    @classmethod
    def of(cls, planned: Planned) -> "Runtime":
        """Return a runtime for a plan that exists."""
        made = cls.__new__(cls)
        made.use(planned)
        return made

    def use(self, planned: Planned, states: Sequence[Tensor] = ()) -> None:
        self.planned, self.states = planned, tuple(states)
        self.sessions = [native.Session(planned.kernels, planned.plan)]  # those that no call uses now
        # Templates of the outputs; they are never written, so they take no physical memory.
        self.templates = [empty_tensor(shape) for shape in planned.outputs]

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs for float32 tensors of the program's shapes; they share no memory with the inputs."""
        for name, each in zip(self.planned.inputs, inputs, strict=True):
            expected = self.planned.inputs[name]
            if tuple(each.shape) != expected:
                raise ValueError(
                    f"input {name!r} has shape {tuple(each.shape)}; the program was compiled for {expected}"
                )
            if each.dtype != torch.float32:
                raise TypeError(f"input {name!r} is {each.dtype}; the program computes in torch.float32")
        return tuple(self.run_fitting([each.contiguous() for each in inputs]))

    def run_fitting(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs for contiguous tensors of the right sizes, with as little overhead as possible."""
        outputs = [torch.empty_like(each) for each in self.templates]
        tensors = (*inputs, *outputs, *self.states)
        try:
            session = self.sessions.pop()  # one step of the interpreter, so no lock is needed
        except IndexError:
            session = native.Session(self.planned.kernels, self.planned.plan)
        try:
            for slot, tensor in enumerate(tensors):
                session.slots[slot] = tensor.data_ptr() or refuse_no_storage(tensor)
            if self.planned.is_whole:
                session.run()
            else:
                self._run_segments(session, tensors)
        finally:
            self.sessions.append(session)
        return outputs

    def _run_segments(self, session: native.Session, tensors: Sequence[Tensor]) -> None:
        def view(plain: PlainArray, shape: Shape) -> Tensor:
            if plain.buffer is None:
                return tensors[plain.slot].view(shape)
            return session.arena[plain.buffer.offset : plain.buffer.offset + shape_size(shape)].view(shape)

        for segment in self.planned.segments:
            if isinstance(segment, range):
                session.run(segment.start, len(segment))
                continue
            operation = segment.operation
            assert operation.torch
            assert operation.torch_target
            buffer, shape = operation.torch_target
            sources = [view(*source) for source in operation.torch_sources]
            with torch.no_grad():
                view(PlainArray(buffer), shape).copy_(operation.torch(*sources))

    def choices(self) -> Sequence[Choice]:
        return self.planned.choices

    def step_milliseconds(self, program: Program) -> dict[str, float]:
        """Return the time of every step now, kernels and torch alike."""
        if self.planned.plan.parts > 1:
            return {}  # one image after another: a step is computed many times
        found = torch_milliseconds(program, [step.name for step in program if self._is_in_torch(step.name)])
        inputs = [empty_tensor(shape).zero_() for shape in self.planned.inputs.values()]
        outputs = [torch.empty_like(each) for each in self.templates]
        states = [torch.zeros_like(each) for each in self.states]
        session = native.Session(self.planned.kernels, self.planned.plan)
        for slot, tensor in enumerate((*inputs, *outputs, *states)):
            session.slots[slot] = tensor.data_ptr()
        for choice in self.planned.choices:
            if choice.steps:
                own = (choice.steps.start, len(choice.steps))
                found[choice.name] = shortest_milliseconds(lambda own=own: session.run(*own))  # type: ignore[misc]
        return found

    def _is_in_torch(self, name: str) -> bool:
        return any(
            isinstance(each, TorchStep) and each.operation.name == name for each in self.planned.segments
        )


class TorchRuntime:
    """Runs a program step by step in torch."""

    def __init__(self, program: Program, states: Sequence[Tensor] = ()) -> None:
        self.program, self.states = program, tuple(states)

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        found = [each.contiguous().clone() for each in interpret(self.program, *inputs, *self.states)]
        results = len(self.program.results)
        for state, new in zip(self.states, found[results:], strict=True):
            state.copy_(new)
        return tuple(found[:results])

    def choices(self) -> Sequence[Choice]:
        return [Choice(step.name, type(step).__name__, "torch") for step in self.program]

    def step_milliseconds(self, program: Program) -> dict[str, float]:
        return torch_milliseconds(program, [step.name for step in program])


def make_runner(
    program: Program,
    threads: int,
    tune: bool,
    store: native.Store | None = None,
    states: Sequence[Tensor] = (),
) -> Runner:
    """Return a runtime with compiled kernels; without them, warn and return one in torch."""
    try:
        native.kernels()
    except (native.NativeError, OSError) as error:  # no library, or one that this system cannot load
        _warn_once(str(error))
        return TorchRuntime(program, states)
    return Runtime(program, threads, tune, store=store, states=states)


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(
        f"st3.engine runs in plain torch, which gains nothing from zeros: {reason}",
        NoKernelsWarning,
        stacklevel=7,  # the caller of compile
    )


def torch_milliseconds(program: Program, names: Sequence[str]) -> dict[str, float]:
    """Return the time of these steps of a program in torch, which does not skip zeros."""
    found: dict[str, float] = {}
    inputs = [empty_tensor(program.shapes[name]).zero_() for name in program.inputs]
    for step, sources, _ in evaluate_all(program, inputs):
        if step.name in names:
            call = partial(evaluate, step, sources, program.shapes[step.target])
            with torch.no_grad():
                found[step.name] = shortest_milliseconds(call)
    return found


def shortest_milliseconds(call: Callable[[], object]) -> float:
    """Return the shortest time of a few calls."""
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return 1e3 * min(taken)


def empty_tensor(shape: Shape) -> Tensor:
    """Return an uninitialised float32 CPU tensor, whatever torch's default dtype and device are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def shape_size(shape: Shape) -> int:
    return torch.Size(shape).numel()


def refuse_no_storage(tensor: Tensor) -> NoReturn:
    """Raise for a tensor whose `data_ptr()` is 0: kernels would read and write at that address."""
    raise ValueError(
        f"a tensor of shape {tuple(tensor.shape)} has no data in memory (it was freed, or it is a fake tensor of "
        "torch's tracer): call a compiled model with real tensors"
    )
