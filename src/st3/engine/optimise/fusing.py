"""Fuse activations and residual additions into the step before, and consecutive steps in torch into one."""

from dataclasses import dataclass, replace

from torch import Tensor

from ..frontend import Read, TorchCall
from ..program import (
    Activated,
    Add,
    Affine,
    Elementwise,
    InTorch,
    Layer,
    Pairwise,
    Program,
    Reshape,
    Select,
    Shape,
    Softmax,
    Step,
)
from ..reference import evaluate

__all__ = ["fuse"]


LIGHT = (
    Affine,
    Pairwise,
    Elementwise,
    Select,
    Softmax,
)  # steps that cost less than bringing their sources elsewhere


def fuse(program: Program) -> Program:
    """Fuse two steps where the value between them has no other reader."""
    program = _fuse_activations(_fuse_residuals(_fuse_activations(_leave_in_torch(program))))
    return _fuse_torch_steps(program)


def _leave_in_torch(program: Program) -> Program:
    """Move light steps to torch if it computes all their sources, and reshapes if it also reads what they return."""
    in_torch: set[str] = set()
    readers: dict[str, list[Step]] = {}
    for step in program:
        for source in step.sources:
            readers.setdefault(source, []).append(step)
    steps: list[Step] = []
    for step in program:
        if isinstance(step, InTorch):
            in_torch.add(step.target)
        elif step.sources and in_torch.issuperset(step.sources):
            is_read_there = all(isinstance(each, InTorch) for each in readers.get(step.target, [step]))
            if isinstance(step, LIGHT) or (isinstance(step, Reshape) and is_read_there):
                step = _in_torch(step, program.shapes[step.target])
                in_torch.add(step.target)
        steps.append(step)
    return program.with_steps(steps)


def _in_torch(step: Step, shape: Shape) -> InTorch:
    reads = tuple(Read(source) for source in step.sources)
    call = TorchCall(InReference(step, shape), reads, {}, step.target, is_value=True)
    why = "torch computes its sources"
    return InTorch(name=step.name, sources=call.sources, target=step.target, function=call, why=why)


@dataclass(frozen=True, eq=False)
class InReference:
    """A step as a function of tensors."""

    step: Step
    shape: Shape

    @property
    def __name__(self) -> str:
        return type(self.step).__name__.lower()

    def __call__(self, *sources: Tensor) -> Tensor:
        return evaluate(self.step, list(sources), self.shape)


def _fuse_activations(program: Program) -> Program:
    count = program.count_reads()
    place: dict[str, int] = {}
    steps: list[Step] = []
    for step in program:
        at = place.get(step.sources[0]) if isinstance(step, Elementwise) else None
        before = steps[at] if at is not None and count[step.sources[0]] == 1 else None
        if at is None or not isinstance(before, Activated) or before.activation is not None:
            place[step.target] = len(steps)
            steps.append(step)
            continue
        assert isinstance(step, Elementwise)
        steps[at] = replace(before, target=step.target, activation=step.activation)
        place[step.target] = at
    return program.with_steps(steps)


def _fuse_residuals(program: Program) -> Program:
    """Fuse an addition into the layer that computes one operand: the later one, so that the other operand exists."""
    count = program.count_reads()
    makers = {step.target: at for at, step in enumerate(program)}
    steps: list[Step | None] = list(program)
    for at, add in enumerate(program):
        if not isinstance(add, Add) or len({program.shapes[name] for name in add.sources}) > 1:
            continue
        made = {makers[name]: name for name in add.sources if name in makers and count[name] == 1}
        ready = [place for place, name in made.items() if _can_take_residual(steps[place], name)]
        if not ready:
            continue
        layer = steps[max(ready)]
        assert isinstance(layer, Layer)
        other = add.sources[1] if add.sources[0] == layer.target else add.sources[0]
        steps[max(ready)] = None
        steps[at] = replace(
            layer, sources=(layer.sources[0], other), target=add.target, activation=add.activation
        )
    return program.with_steps([step for step in steps if step is not None])


def _can_take_residual(step: Step | None, value: str) -> bool:
    match step:
        case Layer(activation=None, sources=(_,)):
            return step.target == value
    return False


def _fuse_torch_steps(program: Program) -> Program:
    """Fuse two torch steps if the first has no other reader, which saves the copy in between."""
    count = program.count_reads()
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
    return program.with_steps(list(steps.values()))
