"""A program, ready to run: kernels chosen, weights packed, memory laid out."""

import ctypes
from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import native
from .convolution import Alternative
from .lowering import lower
from .memory import Arena, Buffer
from .planner import Binding, Operation, Planner
from .program import Conv, Linear, Program
from .values import Plain


@dataclass(frozen=True)
class Choice:
    """What was chosen for one step, and what was measured."""

    name: str
    kind: str
    kernel: str
    milliseconds: dict[str, float] = field(default_factory=dict)
    nonzeros: int = 0
    macs: int = 0


class Runtime:
    """Executes a program."""

    def __init__(self, program: Program, threads: int = 1, tune: bool = True, isa: str | None = None) -> None:
        self.program, self.threads = program, threads
        self.kernels = native.kernels(isa)
        planner = Planner(program, self.kernels, threads)
        for step in program:
            lower(step, planner)
        self.outputs: list[Plain] = []
        for number, name in enumerate(program.outputs):
            value = planner.values[name]
            if value.plain is None:
                slot = Plain(None, len(program.inputs) + number)
                planner.unpack(name, slot)
                self.outputs.append(slot)
            else:
                if value.plain.buffer:
                    value.plain.buffer.used_at(len(planner.operations))
                self.outputs.append(value.plain)
        self.operations = planner.operations
        self.arena = Arena(self.kernels, planner.buffers)
        self.store = native.Store(self.kernels)
        self.slots = (ctypes.c_void_p * (len(program.inputs) + len(program.outputs)))()
        self.measured: dict[str, dict[str, float]] = {}
        self.picked: dict[str, str] = {}
        self.kept: list[object] = []
        self.alternatives = {
            number: operation.tune.alternatives()
            for number, operation in enumerate(self.operations)
            if operation.tune is not None
        }
        scratch = max((each.scratch for some in self.alternatives.values() for each in some), default=0)
        self.pool = native.Pool(self.kernels, threads, scratch)
        self.structures: list[list[native.Step] | None] = [
            self.bind(number, operation, tune) for number, operation in enumerate(self.operations)
        ]
        self.segments = self.cut()

    def hold(self, structure: ctypes.Structure) -> int:
        self.kept.append(structure)
        return ctypes.addressof(structure)

    def address(self, buffer: Buffer | None) -> int:
        return self.arena.address(buffer) if buffer and buffer.size else 0

    def binding(self) -> Binding:
        return Binding(self.address, self.store.keep, self.hold)

    def bind(self, number: int, operation: Operation, tune: bool) -> list[native.Step] | None:
        binding = self.binding()
        if operation.torch:
            return None
        if operation.tune is not None:
            chosen = self.choose(operation, self.alternatives[number], tune)
            operation.kernel = chosen.kernel
            self.picked[operation.name] = chosen.label
            return self.steps(chosen.make(binding))
        assert operation.make is not None
        return self.steps([operation.make(binding)])

    def steps(self, made: list[tuple[ctypes.Structure, int]]) -> list[native.Step]:
        return [native.Step(native.KINDS[type(each)], tasks, self.hold(each)) for each, tasks in made]

    def choose(self, operation: Operation, alternatives: list[Alternative], tune: bool) -> Alternative:
        ranked = sorted(alternatives, key=lambda each: each.cost)
        if not tune:
            return ranked[0]
        candidates = ranked[: self.tries]
        for other in ("dense", "sparse apart"):
            some = [each for each in ranked if each.label.startswith(other)]
            if some and some[0] not in candidates and some[0].cost < 3 * ranked[0].cost:
                candidates.append(some[0])
        times = self.time(candidates)
        self.measured[operation.name] = {each.label: ms for each, ms in zip(candidates, times, strict=True)}
        return candidates[min(range(len(times)), key=times.__getitem__)]

    tries = 4

    def time(self, candidates: list[Alternative], rounds: int = 3) -> list[float]:
        """Measure in turns, so that a change of the processor's clock meets all."""
        kept, self.kept = self.kept, []
        store = native.Store(self.kernels)
        binding = Binding(self.address, store.keep, self.hold)
        made = [self.steps(each.make(binding)) for each in candidates]
        arrays = [(native.Step * len(steps))(*steps) for steps in made]
        times = [float("inf")] * len(made)
        for _ in range(rounds):
            for number, steps in enumerate(arrays):
                times[number] = min(times[number], self.pool.time(steps, len(steps), self.slots, 2))
        self.kept = kept
        return times

    def cut(self) -> list[tuple[object, int] | Operation]:
        """Join neighbouring kernels into arrays that one call executes."""
        segments: list[tuple[object, int] | Operation] = []
        run: list[native.Step] = []

        def close() -> None:
            if run:
                segments.append(((native.Step * len(run))(*run), len(run)))
                run.clear()

        for operation, structure in zip(self.operations, self.structures, strict=True):
            if structure is None:
                close()
                segments.append(operation)
            else:
                run += structure
        close()
        return segments

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the program's outputs for float32 tensors in the usual order."""
        inputs = tuple(each.contiguous() for each in inputs)
        for slot, tensor in enumerate(inputs):
            self.slots[slot] = tensor.data_ptr()
        results = []
        for number, (name, plain) in enumerate(zip(self.program.outputs, self.outputs, strict=True)):
            slot = len(inputs) + number
            if plain.slot == slot:
                results.append(torch.empty(self.program.shapes[name]))
                self.slots[slot] = results[-1].data_ptr()
            else:
                results.append(None)
        for segment in self.segments:
            if isinstance(segment, Operation):
                self.run_in_torch(segment, inputs)
            else:
                self.pool.run(segment[0], segment[1], self.slots)
        return tuple(
            self.tensor(plain, self.program.shapes[name], inputs).clone() if result is None else result
            for name, plain, result in zip(self.program.outputs, self.outputs, results, strict=True)
        )

    def tensor(self, plain: Plain, shape: tuple[int, ...], inputs: tuple[Tensor, ...]) -> Tensor:
        if plain.buffer is None:
            return inputs[plain.slot].view(shape)
        return self.arena.view(plain.buffer, shape)

    def run_in_torch(self, operation: Operation, inputs: tuple[Tensor, ...]) -> None:
        assert operation.torch and operation.torch_target
        sources = [self.tensor(plain, shape, inputs) for plain, shape in operation.torch_sources]
        with torch.no_grad():
            self.arena.view(*operation.torch_target).copy_(operation.torch(*sources))

    def choices(self) -> list[Choice]:
        """Return what was chosen for each step of the program."""
        found = []
        for operation in self.operations:
            step = operation.step
            if step is None:
                continue
            nonzeros = macs = 0
            if isinstance(step, Conv | Linear):
                shape = self.program.shapes[step.target]
                nonzeros = int((step.weight != 0).sum())
                pixels = torch.Size(shape).numel() // step.weight.shape[0]
                macs = nonzeros * pixels
            kind = type(step).__name__
            found.append(
                Choice(step.name, kind, operation.kernel, self.measured.get(step.name, {}), nonzeros, macs)
            )
        return found
