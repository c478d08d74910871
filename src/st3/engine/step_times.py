"""Time the steps of a program one by one, in the engine and dense in torch."""

import time
from collections.abc import Callable

import torch

from . import plan
from .execution import Execution
from .executor import Executor
from .memory import empty_tensor
from .program import Conv, Linear, Program, Step
from .reference import evaluate
from .runtime import Runtime

__all__ = ["call_milliseconds", "dense_milliseconds", "step_milliseconds"]

REPEATS = 3


def step_milliseconds(executor: Executor) -> dict[str, float]:
    """Return the time of every step that has a kernel; two fused steps have one time, under the first one's name."""
    execution = executor.execution if isinstance(executor, Runtime) else None
    if not isinstance(execution, Execution):
        return {}
    # The kernels use the tensors of the last call, so that must be ours, and its tensors must stay alive.
    inputs = [empty_tensor(executor.program.shapes[name]).zero_() for name in executor.program.inputs]
    outputs = execution.run(*inputs)
    found = {}
    for operation, steps in zip(execution.operations, execution.structures, strict=True):
        if steps and operation.step is not None:
            name = (operation.before or operation.step).name
            array = (plan.Step * len(steps))(*steps)
            found[name] = execution.pool.time(array, len(steps), execution.slots, REPEATS)
    del inputs, outputs
    return found


def call_milliseconds(executor: Executor) -> float:
    """Return the time of a whole call."""
    inputs = [empty_tensor(executor.program.shapes[name]).zero_() for name in executor.program.inputs]
    return _shortest(lambda: executor.run(*inputs))


def dense_milliseconds(program: Program, threads: int) -> dict[str, float]:
    """Return the time of each convolution and linear layer in torch, which does not skip zeros."""
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
    sources = [empty_tensor(program.shapes[source]).uniform_() for source in step.sources]
    return _shortest(lambda: evaluate(step, sources, program.shapes[step.target]))


def _shortest(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return 1e3 * min(taken)
