"""The runtime executes a program with compiled kernels, dense as a whole where that is faster, or in torch."""

import hashlib
import math
import time
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from . import native
from .batches import BatchedExecution, batch_part
from .dense import DenseExecution
from .execution import Execution
from .memory import empty_tensor
from .operation import Operation
from .program import Conv, Linear, Program, Step
from .reference import interpret
from .tuning import Tuner, cache_file

TRY_DENSE = 0.3  # with a larger share of multiply-adds left, the dense network is measured too
ROUNDS = 5


@dataclass(frozen=True)
class Choice:
    """The kernel chosen for one step.

    `milliseconds` holds the measured time by kernel; it is empty if the choice was estimated or cached. Two steps that
    are computed as one are measured as one; `fused` names the other step.
    """

    name: str
    kind: str
    kernel: str
    milliseconds: dict[str, float] = field(default_factory=dict)
    nonzeros: int = 0
    macs: int = 0
    fused: str = ""


class Runtime:
    """Executes a program on `threads` threads.

    With `tune`, alternatives are measured, and the results cached in the user's cache folder unless `cache=False`.
    `isa` selects an instruction set other than the best: avx512, avx2, baseline. Without compiled kernels, or with
    `isa="none"`, everything runs in torch.
    """

    def __init__(
        self,
        program: Program,
        threads: int = 1,
        tune: bool = True,
        isa: str | None = None,
        cache: bool = True,
    ) -> None:
        self.program = program
        self.execution: Execution | BatchedExecution | DenseExecution | None = None
        self.network_milliseconds: dict[str, float] = {}
        if isa == "none" or (isa is None and not native.is_built()):
            return
        tuner = Tuner(cache_file() if cache else None) if tune else None
        part = batch_part(program)
        if part is program:
            self.execution = Execution(program, threads, tuner, isa)
        else:
            self.execution = BatchedExecution(program, part, threads, tuner, isa)
        if tuner and mac_density(program) > TRY_DENSE:
            self.compare(DenseExecution(program, threads), tuner, f"{fingerprint(program)} t{threads} {isa}")
        if tuner:
            tuner.save()

    def compare(self, dense: DenseExecution, tuner: Tuner, key: str) -> None:
        """Use the dense execution if the whole network is faster with it."""
        known = tuner.known.get(key)
        if known is None:
            assert self.execution is not None
            self.network_milliseconds = measure({"sparse": self.execution, "dense": dense}, self.program)
            known = min(self.network_milliseconds, key=self.network_milliseconds.__getitem__)
            tuner.known[key] = known
            tuner.changed = True
        if known == "dense":
            self.execution = dense

    @property
    def kernel_execution(self) -> Execution | None:
        """The execution with compiled kernels, if there is one."""
        if isinstance(self.execution, BatchedExecution):
            return self.execution.execution
        return self.execution if isinstance(self.execution, Execution) else None

    @property
    def is_dense(self) -> bool:
        """Whether the whole network runs dense."""
        return isinstance(self.execution, DenseExecution)

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs for float32 tensors of the program's shapes; they share no memory with the inputs."""
        for name, each in zip(self.program.inputs, inputs, strict=True):
            expected = self.program.shapes[name]
            if tuple(each.shape) != expected:
                raise ValueError(
                    f"input {name!r} has shape {tuple(each.shape)}; the program was compiled for {expected}"
                )
            if each.dtype != torch.float32:
                raise TypeError(f"input {name!r} is {each.dtype}; the program computes in torch.float32")
        if self.execution is not None:
            return self.execution.run(*inputs)
        return tuple(each.contiguous().clone() for each in interpret(self.program, *inputs))

    def choices(self) -> list[Choice]:
        """Return the choice for each step, in the program's order."""
        found = {step.name: Choice(step.name, type(step).__name__, "torch") for step in self.program}
        if self.is_dense:
            found = {step.name: replace(found[step.name], kernel=dense_kernel(step)) for step in self.program}
        elif self.kernel_execution:
            for operation in self.kernel_execution.operations:
                found.update(
                    describe_operation(operation, self.kernel_execution.measured.get(operation.name, {}))
                )
            for step in self.program:
                if type(step).__name__ == "Reshape":
                    found[step.name] = replace(found[step.name], kernel="view")
        return [add_counts(found[step.name], step, self.program) for step in self.program]


def describe_operation(operation: Operation, measured: dict[str, float]) -> dict[str, Choice]:
    """Return the choices for the step or the two steps that an operation computes."""
    step, before = operation.step, operation.before
    if step is None:
        return {}
    best: dict[str, float] = {}
    for label, ms in measured.items():
        kernel = label.split()[0]
        best[kernel] = min(ms, best.get(kernel, math.inf))
    kernel = operation.kernel
    own = Choice(step.name, type(step).__name__, operation.second_kernel if before else kernel, best)
    if before is None:
        return {step.name: own}
    first = Choice(before.name, type(before).__name__, kernel, best, fused=step.name)
    return {before.name: first, step.name: replace(own, milliseconds={}, fused=before.name)}


def dense_kernel(step: Step) -> str:
    return "dense" if isinstance(step, Conv | Linear) else "torch"


def add_counts(choice: Choice, step: Step, program: Program) -> Choice:
    """Return the choice with its counts of non-zero weights and multiply-adds."""
    if not isinstance(step, Conv | Linear):
        return choice
    nonzeros = int((step.weight != 0).sum())
    outputs = math.prod(program.shapes[step.target]) // step.weight.shape[0]
    return replace(choice, nonzeros=nonzeros, macs=nonzeros * outputs)


def mac_density(program: Program) -> float:
    """Return the share of multiply-adds that are left without zero weights."""
    left = whole = 0
    for step in program:
        if isinstance(step, Conv | Linear):
            outputs = math.prod(program.shapes[step.target]) // step.weight.shape[0]
            left += int((step.weight != 0).sum()) * outputs
            whole += step.weight.size * outputs
    return left / whole if whole else 0.0


def fingerprint(program: Program) -> str:
    """Return a text that is equal for networks with the same steps, shapes and sparsity."""
    steps = [f"{type(step).__name__}{program.shapes[step.target]}" for step in program]
    return f"network {hash_text(' '.join(steps))} left {mac_density(program):.2f}"


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def measure(
    executions: dict[str, Execution | BatchedExecution | DenseExecution], program: Program
) -> dict[str, float]:
    """Return the shortest time of each execution in milliseconds, from interleaved runs."""
    inputs = [empty_tensor(program.shapes[name]).zero_() for name in program.inputs]
    best = dict.fromkeys(executions, math.inf)
    for _ in range(ROUNDS):
        for name, execution in executions.items():
            begin = time.perf_counter()
            execution.run(*inputs)
            best[name] = min(best[name], 1e3 * (time.perf_counter() - begin))
    return best
