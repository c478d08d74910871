"""A program, ready to run: kernels chosen, weights packed, memory laid out."""

import ctypes
from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import native
from .convolution import Config, Convolution
from .lowering import lower
from .memory import Arena
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
        self.arena = Arena(planner.buffers)
        self.slots = (ctypes.c_void_p * (len(program.inputs) + len(program.outputs)))()
        self.configs: dict[str, Config] = {}
        self.measured: dict[str, dict[str, float]] = {}
        convolutions = [each.tune for each in self.operations if isinstance(each.tune, Convolution)]
        scratch = max((c.scratch(g) for c in convolutions for _, g in c.guesses()[:40]), default=0)
        self.pool = native.Pool(self.kernels, threads, scratch)
        self.kept: list[object] = []
        self.structures: list[native.Step | None] = []
        for operation in self.operations:
            self.structures.append(self.bind(operation, tune))
        self.segments = self.cut()

    def bind(self, operation: Operation, tune: bool) -> native.Step | None:
        binding = Binding(self.arena.address)
        if operation.torch:
            return None
        if isinstance(operation.tune, Convolution):
            config = self.choose(operation, tune)
            self.configs[operation.name] = config
            operation.kernel = "sparse" if config.is_sparse else "dense"
            structure, tasks = operation.tune.make(binding, config)
        else:
            assert operation.make is not None
            structure, tasks = operation.make(binding)
        self.kept += [binding, structure]
        return native.Step(native.KINDS[type(structure)], tasks, ctypes.addressof(structure))

    def choose(self, operation: Operation, tune: bool) -> Config:
        convolution: Convolution = operation.tune
        guesses = [config for _, config in convolution.guesses()]
        dense = convolution.dense_config()
        density = len(convolution.nonzeros.weight) / convolution.weight.size
        if not tune:
            return dense if dense and density > 0.6 else guesses[0]
        candidates = guesses[: self.tries]
        if dense and density > 0.3:
            candidates.append(dense)
        times = {config: self.time(convolution, config) for config in candidates}
        self.measured[operation.name] = {str(tuple(config)): ms for config, ms in times.items()}
        return min(times, key=lambda each: times[each])

    tries = 4

    def time(self, convolution: Convolution, config: Config) -> float:
        binding = Binding(self.arena.address)
        structure, tasks = convolution.make(binding, config)
        step = native.Step(native.KINDS[type(structure)], tasks, ctypes.addressof(structure))
        return self.pool.time(step, self.slots, 4)

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
                run.append(structure)
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
