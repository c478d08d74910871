"""Fuse activations and residual additions into the step before, and consecutive torch steps into one."""

from collections import Counter
from dataclasses import replace

from .folding import count_reads, replace_steps
from .program import Add, Affine, Conv, Elementwise, InTorch, Linear, Program, Step
from .torch_call import TorchCall

__all__ = ["fuse"]


def fuse(program: Program) -> Program:
    """Fuse two steps where the value between them has no other reader."""
    return _fuse_torch_steps(_fuse_activations(_fuse_residuals(_fuse_activations(program))))


def _fuse_activations(program: Program) -> Program:
    count = count_reads(program)
    place: dict[str, int] = {}
    steps: list[Step] = []
    for step in program:
        at = place.get(step.sources[0]) if isinstance(step, Elementwise) else None
        if at is None or count[step.sources[0]] > 1 or not _can_take_activation(steps[at]):
            place[step.target] = len(steps)
            steps.append(step)
            continue
        assert isinstance(step, Elementwise)
        steps[at] = replace(steps[at], target=step.target, activation=step.activation)  # type: ignore[call-arg]
        place[step.target] = at
    return replace_steps(program, steps)


def _can_take_activation(step: Step) -> bool:
    return isinstance(step, Conv | Linear | Affine | Add) and step.activation is None


def _fuse_residuals(program: Program) -> Program:
    """Fuse an addition into the layer that computes one operand: the later one, so that the other operand exists."""
    count = count_reads(program)
    makers = {step.target: at for at, step in enumerate(program)}
    steps: list[Step | None] = list(program)
    for at, add in enumerate(program):
        if not isinstance(add, Add):
            continue
        ready = [makers[source] for source in add.sources if _can_take_residual(source, makers, steps, count)]
        if not ready:
            continue
        layer = steps[max(ready)]
        assert isinstance(layer, Conv | Linear)
        other = add.sources[1] if add.sources[0] == layer.target else add.sources[0]
        steps[max(ready)] = None
        steps[at] = replace(
            layer, sources=(layer.sources[0], other), target=add.target, activation=add.activation
        )
    return replace_steps(program, [step for step in steps if step is not None])


def _can_take_residual(
    value: str, makers: dict[str, int], steps: list[Step | None], count: Counter[str]
) -> bool:
    step = steps[makers[value]] if value in makers else None
    return (
        isinstance(step, Conv | Linear)
        and step.target == value
        and step.activation is None
        and len(step.sources) == 1
        and count[value] == 1
    )


def _fuse_torch_steps(program: Program) -> Program:
    """Fuse two torch steps if the first has no other reader, which saves the copy in between."""
    count = count_reads(program)
    calls: dict[str, TorchCall] = {}  # value -> the call that computes it, if it is read once
    steps: dict[str, Step] = {}
    for step in program:
        if isinstance(step, InTorch) and isinstance(step.function, TorchCall):
            call = step.function
            for source in step.sources:
                if source in calls and call.reads.count(source) == 1:
                    call = call.with_inner(calls[source])
                    del steps[source]
            step = replace(step, sources=call.sources, function=call)
            if count[step.target] == 1:
                calls[step.target] = call
        steps[step.target] = step
    return replace_steps(program, list(steps.values()))
