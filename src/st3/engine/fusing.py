"""Activations and residual additions taken into the step that makes their input; chains in torch as one step."""

from collections import Counter
from dataclasses import replace

from .folding import reads, with_steps
from .program import Add, Affine, Conv, Elementwise, InTorch, Linear, Program, Step
from .torch_call import TorchCall

__all__ = ["fuse"]


def fuse(program: Program) -> Program:
    """Fuse where the value between the two has no other reader."""
    return _join_torch(_fuse_activations(_fuse_residuals(_fuse_activations(program))))


def _fuse_activations(program: Program) -> Program:
    count = reads(program)
    place: dict[str, int] = {}
    steps: list[Step] = []
    for step in program:
        at = place.get(step.sources[0]) if isinstance(step, Elementwise) else None
        if at is None or count[step.sources[0]] > 1 or not _is_free(steps[at]):
            place[step.target] = len(steps)
            steps.append(step)
            continue
        assert isinstance(step, Elementwise)
        steps[at] = replace(steps[at], target=step.target, activation=step.activation)  # type: ignore[call-arg]
        place[step.target] = at
    return with_steps(program, steps)


def _is_free(step: Step) -> bool:
    return isinstance(step, Conv | Linear | Affine | Add) and step.activation is None


def _fuse_residuals(program: Program) -> Program:
    """Give an addition to the layer that makes one operand: the later one, so that the other exists by then."""
    count = reads(program)
    makers = {step.target: at for at, step in enumerate(program)}
    steps: list[Step | None] = list(program)
    for at, add in enumerate(program):
        if not isinstance(add, Add):
            continue
        ready = [makers[source] for source in add.sources if _takes_residual(source, makers, steps, count)]
        if not ready:
            continue
        layer = steps[max(ready)]
        assert isinstance(layer, Conv | Linear)
        other = add.sources[1] if add.sources[0] == layer.target else add.sources[0]
        steps[max(ready)] = None
        steps[at] = replace(
            layer, sources=(layer.sources[0], other), target=add.target, activation=add.activation
        )
    return with_steps(program, [step for step in steps if step is not None])


def _takes_residual(
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


def _join_torch(program: Program) -> Program:
    """Make one step of two in torch if the first has no other reader: what lies between is never copied."""
    count = reads(program)
    calls: dict[str, TorchCall] = {}  # value -> the call that makes it, if it is read once
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
    return with_steps(program, list(steps.values()))
