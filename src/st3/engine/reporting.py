"""The report of a compiled model, as text."""

import numpy as np

from ..tables import text_table
from . import native
from .executor import Executor
from .frontend import TorchCall
from .program import Conv, InTorch, Linear, Step
from .runtime import Choice, Runtime
from .step_times import call_milliseconds, dense_milliseconds, step_milliseconds

__all__ = ["report_text"]

HEAD = ["step", "kind", "weights", "zeros %", "kernel", "ms", "dense ms"]


def report_text(name: str, shapes: str, executor: Executor, threads: int) -> str:
    """Return a table of the steps, and what runs in torch and why.

    All times are measured now: "ms" is the step in the engine, "dense ms" the same layer in torch. The last line is a
    whole call, including what happens between the steps.
    """
    program = executor.program
    choices = {choice.name: choice for choice in executor.choices()}
    own, dense = step_milliseconds(executor), dense_milliseconds(program, threads)
    steps = [step for step in program if not isinstance(step, InTorch)]
    rows = [_row(step, choices[step.name], own, dense) for step in steps]
    rows += [_total(steps, call_milliseconds(executor), dense)]
    lines = [f"{name} for an input of {shapes}: {_kernels_text(executor, threads)}", ""]
    lines += [text_table(HEAD, rows, left=(0, 1, 4))]
    in_torch = [step for step in program if isinstance(step, InTorch)]
    if in_torch:
        lines += ["", f"In torch ({len(in_torch)} of {len(program.steps)} steps):"]
        lines += [f"  {step.name}: {_operators_text(step)}; {step.why}" for step in in_torch]
    return "\n".join(lines)


def _kernels_text(executor: Executor, threads: int) -> str:
    if not isinstance(executor, Runtime):
        return (
            "in plain torch, since the compiled kernels are missing (python -m st3.engine.build builds them)"
        )
    threads_text = f"{threads} thread{'s' if threads > 1 else ''}"
    if executor.is_dense:
        return f"{threads_text}, dense throughout: with so few zeros that is faster"
    return f"{threads_text}, {native.kernels().name} kernels"


def _row(step: Step, choice: Choice, own: dict[str, float], dense: dict[str, float]) -> list[str]:
    weights, zeros = _counts(step)
    fused = f"with {choice.fused}" if choice.fused else "-"
    return [
        step.name,
        type(step).__name__,
        f"{weights:,}" if weights else "-",
        f"{100 * zeros / weights:.1f}" if weights else "-",
        choice.kernel,
        f"{own[step.name]:.3f}" if step.name in own else fused,
        f"{dense[step.name]:.3f}" if step.name in dense else "-",
    ]


def _counts(step: Step) -> tuple[int, int]:
    if not isinstance(step, Conv | Linear):
        return 0, 0
    return step.weight.size, step.weight.size - int(np.count_nonzero(step.weight))


def _total(steps: list[Step], whole: float, dense: dict[str, float]) -> list[str]:
    counts = [_counts(step) for step in steps]
    weights, zeros = sum(all_of for all_of, _ in counts), sum(zero for _, zero in counts)
    share = f"{100 * zeros / weights:.1f}" if weights else "-"
    return ["all", "", f"{weights:,}", share, "", f"{whole:.3f}", f"{sum(dense.values()):.3f}"]


def _operators_text(step: InTorch) -> str:
    call = step.function
    return ", ".join(call.operators) if isinstance(call, TorchCall) else "a function"
