"""The report of a compiled model, as text."""

from ..tables import text_table
from .frontend import TorchCall
from .plan.make import Choice
from .process_state import plain_torch
from .program import InTorch, Layer, Program, Quantised
from .run import Runtime, shortest_milliseconds, torch_milliseconds
from .specialisation import OwnWay, Specialisation

__all__ = ["operators_text", "report_text"]

HEAD = ["step", "kind", "weights", "zeros %", "kernel", "ms", "dense ms"]


def report_text(
    name: str, compiled: Specialisation | OwnWay, program: Program, in_float32: Program | None, threads: int
) -> str:
    """Return a table of the steps, and what runs in torch and why.

    All times are measured now: "ms" is the step in the engine, "dense ms" the same step in torch, in float32. The last
    line is a whole call, including what happens between the steps. `in_float32` is the program before layers were put
    into int8, if that was asked for.
    """
    runner = compiled.runner if isinstance(compiled, Specialisation) else None
    choices = runner.choices() if runner else [_in_own_way(step) for step in program]
    in_torch = {step.name: step for step in program if isinstance(step, InTorch)}
    with plain_torch():
        plain = in_float32 or program
        dense = torch_milliseconds(plain, [step.name for step in plain])
        own = runner.step_milliseconds(program) if runner else {}
        whole = shortest_milliseconds(lambda: compiled(compiled.given))
    rows = [_row(choice, own, dense) for choice in choices if choice.name not in in_torch]
    rows += [_torch_row(in_torch, own, dense)] if in_torch else []
    rows += [_total(choices, whole, dense)]
    lines = [f"{name} for an input of {compiled.shapes}: {_kernels_text(compiled, threads)}"]
    if in_float32 and runner:
        layers = sum(isinstance(step, Layer) for step in in_float32)
        lines += [f"In int8: {sum(isinstance(step, Quantised) for step in program)} of {layers} layers."]
    lines += [""]
    lines += [text_table(HEAD, rows, left=(0, 1, 4))]
    if in_torch:
        lines += ["", f"In torch ({len(in_torch)} of {len(program.steps)} steps):"]
        lines += [f"  {step.name}: {operators_text(step)}; {step.why}" for step in in_torch.values()]
    return "\n".join(lines)


def _kernels_text(compiled: Specialisation | OwnWay, threads: int) -> str:
    threads_text = f"{threads} thread{'s' if threads > 1 else ''}"
    if isinstance(compiled, OwnWay):
        return f"{threads_text}, in torch as it is: that was faster than the engine's program"
    if not isinstance(compiled.runner, Runtime):
        return (
            "in plain torch, since the compiled kernels are missing (python -m st3.engine.build builds them)"
        )
    return f"{threads_text}, {compiled.runner.planned.kernels.name} kernels"


def _in_own_way(step: object) -> Choice:
    return Choice(step.name, type(step).__name__, "torch")  # type: ignore[attr-defined]


def _row(choice: Choice, own: dict[str, float], dense: dict[str, float]) -> list[str]:
    fused = f"with {choice.fused}" if choice.fused else "-"
    return [
        choice.name,
        choice.kind,
        f"{choice.weights:,}" if choice.weights else "-",
        _share(choice.weights - choice.nonzeros, choice.weights),
        choice.kernel,
        f"{own[choice.name]:.3f}" if choice.name in own else fused,
        f"{dense[choice.name]:.3f}" if choice.name in dense else "-",
    ]


def _torch_row(steps: dict[str, InTorch], own: dict[str, float], dense: dict[str, float]) -> list[str]:
    times = (f"{sum(found.get(name, 0.0) for name in steps):.3f}" if found else "-" for found in (own, dense))
    return [f"{len(steps)} steps in torch", "InTorch", "-", "-", "torch", *times]


def _total(choices: object, whole: float, dense: dict[str, float]) -> list[str]:
    counts = [(choice.weights, choice.nonzeros) for choice in choices]  # type: ignore[attr-defined]
    weights, nonzeros = sum(all_of for all_of, _ in counts), sum(left for _, left in counts)
    share = _share(weights - nonzeros, weights)
    return ["all", "", f"{weights:,}", share, "", f"{whole:.3f}", f"{sum(dense.values()):.3f}"]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def operators_text(step: InTorch) -> str:
    """Return the operators that torch evaluates in a step."""
    call = step.function
    return ", ".join(call.operators) if isinstance(call, TorchCall) else "a function"
