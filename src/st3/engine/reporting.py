"""What a compiled model is made of, as text."""

from collections.abc import Sequence

import numpy as np

from ..tables import text_table
from . import native
from .executor import Executor
from .program import Conv, InTorch, Linear, Program, Step
from .runtime import Choice, Runtime
from .torch_call import TorchCall

__all__ = ["report_text"]

HEAD = ["step", "kind", "weights", "zeros %", "kernel", "sparse ms", "dense ms"]


def report_text(name: str, shapes: str, executor: Executor) -> str:
    """Return a table of the steps, what runs in torch and why, and which kernels this processor has."""
    program, choices = executor.program, {choice.name: choice for choice in executor.choices()}
    rows = [_row(step, choices.get(step.name)) for step in program if not isinstance(step, InTorch)]
    lines = [f"{name} for an input of {shapes}: {_processor(executor)}", ""]
    lines += [text_table(HEAD, [*rows, _total(program, list(choices.values()))], left=(0, 1, 4))]
    in_torch = [step for step in program if isinstance(step, InTorch)]
    if in_torch:
        lines += ["", f"{len(in_torch)} steps run in torch:"]
        lines += [f"  {step.name}: {_what(step)}; {step.why}" for step in in_torch]
    return "\n".join(lines)


def _processor(executor: Executor) -> str:
    if not isinstance(executor, Runtime):
        return (
            "in plain torch, since the compiled kernels are missing; `python -m st3.engine.build` makes them"
        )
    threads = f"{executor.threads} thread{'s' if executor.threads > 1 else ''}"
    kernels = native.kernels().name
    if kernels == "baseline":
        return f"{threads}, kernels for any processor of its kind: it has neither AVX2 nor AVX-512"
    return f"{threads}, kernels for {kernels}"


def _row(step: Step, choice: Choice | None) -> list[str]:
    weights, zeros = _counts(step)
    share = f"{100 * zeros / weights:.1f}" if weights else "-"
    kernel = choice.kernel if choice else "-"
    sparse, dense = (_milliseconds(choice, kind) for kind in ("sparse", "dense"))
    return [step.name, type(step).__name__, f"{weights:,}" if weights else "-", share, kernel, sparse, dense]


def _counts(step: Step) -> tuple[int, int]:
    if not isinstance(step, Conv | Linear):
        return 0, 0
    return step.weight.size, step.weight.size - int(np.count_nonzero(step.weight))


def _milliseconds(choice: Choice | None, kind: str) -> str:
    """Return the best time of that kind of kernel, if one was measured."""
    times = [ms for label, ms in choice.milliseconds.items() if label.startswith(kind)] if choice else []
    return f"{min(times):.3f}" if times else "-"


def _total(program: Program, choices: Sequence[Choice]) -> list[str]:
    counts = [_counts(step) for step in program]
    weights, zeros = (sum(each) for each in zip(*counts, strict=True)) if counts else (0, 0)
    share = f"{100 * zeros / weights:.1f}" if weights else "-"
    chosen = sum(min(choice.milliseconds.values()) for choice in choices if choice.milliseconds)
    return ["all", "", f"{weights:,}", share, "", f"{chosen:.3f}" if chosen else "-", ""]


def _what(step: InTorch) -> str:
    call = step.function
    return ", ".join(call.operators) if isinstance(call, TorchCall) else "a function"
