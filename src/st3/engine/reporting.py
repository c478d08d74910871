"""What a compiled model is made of, as text."""

import time
from collections.abc import Sequence

import numpy as np
import torch

from ..tables import text_table
from . import native
from .executor import Executor
from .program import Conv, InTorch, Linear, Program, Step
from .reference import evaluate
from .runtime import Choice, Runtime
from .torch_call import TorchCall

__all__ = ["dense_milliseconds", "report_text"]

HEAD = ["step", "kind", "weights", "zeros %", "kernel", "ms", "dense ms"]
REPEATS = 3


def report_text(name: str, shapes: str, executor: Executor, threads: int) -> str:
    """Return a table of the steps, what runs in torch and why, and which kernels this processor has.

    "ms" is what the chosen kernel took when it was chosen, "dense ms" what torch takes for the same layer now.
    """
    program, choices = executor.program, {choice.name: choice for choice in executor.choices()}
    dense = dense_milliseconds(program, threads)
    rows = [_row(step, choices.get(step.name), dense) for step in program if not isinstance(step, InTorch)]
    lines = [f"{name} for an input of {shapes}: {_processor(executor, threads)}", ""]
    lines += [text_table(HEAD, [*rows, _total(program, [*choices.values()], dense)], left=(0, 1, 4))]
    in_torch = [step for step in program if isinstance(step, InTorch)]
    if in_torch:
        lines += ["", f"In torch ({len(in_torch)} steps):"]
        lines += [f"  {step.name}: {_what(step)}; {step.why}" for step in in_torch]
    return "\n".join(lines)


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
    sources = [torch.rand(program.shapes[source]) for source in step.sources]
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        evaluate(step, sources, program.shapes[step.target])
        taken.append(time.perf_counter() - begin)
    return 1e3 * min(taken)


def _processor(executor: Executor, threads: int) -> str:
    if not isinstance(executor, Runtime):
        return (
            "in plain torch, since the compiled kernels are missing (python -m st3.engine.build makes them)"
        )
    kernels = native.kernels().name
    what = "any processor of this kind (it has no AVX2)" if kernels == "baseline" else kernels
    return f"{threads} thread{'s' if threads > 1 else ''}, kernels for {what}"


def _row(step: Step, choice: Choice | None, dense: dict[str, float]) -> list[str]:
    weights, zeros = _counts(step)
    return [
        step.name,
        type(step).__name__,
        f"{weights:,}" if weights else "-",
        f"{100 * zeros / weights:.1f}" if weights else "-",
        choice.kernel if choice else "-",
        f"{min(choice.milliseconds.values()):.3f}" if choice and choice.milliseconds else "-",
        f"{dense[step.name]:.3f}" if step.name in dense else "-",
    ]


def _counts(step: Step) -> tuple[int, int]:
    if not isinstance(step, Conv | Linear):
        return 0, 0
    return step.weight.size, step.weight.size - int(np.count_nonzero(step.weight))


def _total(program: Program, choices: Sequence[Choice], dense: dict[str, float]) -> list[str]:
    counts = [_counts(step) for step in program]
    weights, zeros = sum(all_of for all_of, _ in counts), sum(zero for _, zero in counts)
    share = f"{100 * zeros / weights:.1f}" if weights else "-"
    chosen = sum(min(choice.milliseconds.values()) for choice in choices if choice.milliseconds)
    cells = [f"{ms:.3f}" if ms else "-" for ms in (chosen, sum(dense.values()))]
    return ["all", "", f"{weights:,}", share, "", *cells]


def _what(step: InTorch) -> str:
    call = step.function
    return ", ".join(call.operators) if isinstance(call, TorchCall) else "a function"
