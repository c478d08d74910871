"""What the steps of a program take, each by itself: in the engine, and in torch with all their zeros."""

import time
from collections.abc import Callable

import torch

from . import plan
from .execution import Execution
from .executor import Executor
from .memory import fresh
from .program import Conv, Linear, Program, Step
from .reference import evaluate
from .runtime import Runtime

__all__ = ["dense_milliseconds", "milliseconds", "whole_milliseconds"]

REPEATS = 3


def milliseconds(executor: Executor) -> dict[str, float]:
    """Return the time of every step that has a kernel; two that are fused have one time, under the first's name."""
    execution = executor.execution if isinstance(executor, Runtime) else None
    if not isinstance(execution, Execution):
        return {}
    # The kernels read and write where the last call did, so that call must be ours and its tensors must live.
    inputs = [fresh(executor.program.shapes[name]).zero_() for name in executor.program.inputs]
    outputs = execution.run(*inputs)
    found = {}
    for operation, steps in zip(execution.operations, execution.structures, strict=True):
        if steps and operation.step is not None:
            name = (operation.before or operation.step).name
            array = (plan.Step * len(steps))(*steps)
            found[name] = execution.pool.time(array, len(steps), execution.slots, REPEATS)
    del inputs, outputs
    return found


def whole_milliseconds(executor: Executor) -> float:
    """Return the time of a whole call."""
    inputs = [fresh(executor.program.shapes[name]).zero_() for name in executor.program.inputs]
    return _shortest(lambda: executor.run(*inputs))


def dense_milliseconds(program: Program, threads: int) -> dict[str, float]:
    """Return what torch takes for each convolution and linear layer by itself, zeros and all."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            return {
                step.name: _in_torch(step, program) for step in program if isinstance(step, Conv | Linear)
            }
    finally:
        torch.set_num_threads(before)


def _in_torch(step: Step, program: Program) -> float:
    sources = [fresh(program.shapes[source]).uniform_() for source in step.sources]
    return _shortest(lambda: evaluate(step, sources, program.shapes[step.target]))


def _shortest(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return 1e3 * min(taken)
