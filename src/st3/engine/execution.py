"""Execute a program with compiled kernels: choose them, pack weights, allocate memory, run."""

import ctypes

import numpy as np
import torch
from torch import Tensor

from . import native, plan
from .config import Alternative
from .lowering import lower
from .memory import Arena, Buffer, empty_tensor, refuse_no_storage
from .operation import Binding, Operation
from .planner import Planner
from .program import Program
from .tuning import Tuner
from .values import PlainArray

# How alternatives are measured: (within this factor of the shortest time so far, this many runs each).
ROUNDS = ((float("inf"), 2), (1.3, 3), (1.1, 6))
FLUSH_FLOATS = 1 << 20  # more than the L2 cache holds


class Execution:
    """Executes a program with the compiled kernels; steps without a kernel run in torch."""

    def __init__(
        self, program: Program, threads: int = 1, tuner: Tuner | None = None, isa: str | None = None
    ) -> None:
        self.program, self.threads, self.tuner = program, threads, tuner
        self.kernels = native.kernels(isa)
        planner = Planner(program, self.kernels, threads)
        for step in program:
            lower(step, planner)
        self.outputs: list[PlainArray] = []
        for number, name in enumerate(program.outputs):
            value = planner.values[name]
            if value.plain is None:
                slot = PlainArray(None, len(program.inputs) + number)
                planner.unpack(name, slot)
                self.outputs.append(slot)
            else:
                if value.plain.buffer:
                    value.plain.buffer.mark_used(len(planner.operations))
                self.outputs.append(value.plain)
        self.operations = planner.operations
        self.arena = Arena(self.kernels, planner.buffers)
        self.store = native.Store(self.kernels)
        self.slots = (ctypes.c_void_p * (len(program.inputs) + len(program.outputs)))()
        self.measured: dict[str, dict[str, float]] = {}
        self.held: list[object] = []
        self.alternatives = {
            number: operation.tune.alternatives()
            for number, operation in enumerate(self.operations)
            if operation.tune is not None
        }
        scratch = max((each.scratch for some in self.alternatives.values() for each in some), default=0)
        self.pool = native.Pool(self.kernels, threads, scratch)
        self.structures: list[list[plan.Step] | None] = [
            self.bind(number, operation) for number, operation in enumerate(self.operations)
        ]
        self.segments = self.build_segments()

    def hold(self, structure: ctypes.Structure) -> int:
        self.held.append(structure)
        return ctypes.addressof(structure)

    def address(self, buffer: Buffer | None) -> int:
        return self.arena.address(buffer) if buffer and buffer.size else 0

    def binding(self) -> Binding:
        return Binding(self.address, self.store.keep, self.hold)

    def bind(self, number: int, operation: Operation) -> list[plan.Step] | None:
        binding = self.binding()
        if operation.torch:
            return None
        if operation.tune is not None:
            chosen = self.choose(operation, self.alternatives[number])
            operation.kernel, operation.second_kernel = chosen.kernel, chosen.second_kernel
            return self.steps(chosen.make(binding))
        assert operation.make is not None
        return self.steps([operation.make(binding)])

    def steps(self, made: list[tuple[ctypes.Structure, int]]) -> list[plan.Step]:
        return [plan.Step(plan.KINDS[type(each)], tasks, self.hold(each)) for each, tasks in made]

    def choose(self, operation: Operation, alternatives: list[Alternative]) -> Alternative:
        """Return the fastest alternative by the tuner's measurements, or by estimates without a tuner."""
        if self.tuner is None:
            return min(alternatives, key=lambda each: each.cost)
        key = f"{operation.tune.signature} t{self.threads} {self.kernels.name}"
        chosen, measured = self.tuner.choose(key, alternatives, self.time)
        self.measured[operation.name] = measured
        return chosen

    def time(self, candidates: list[Alternative]) -> list[float]:
        """Return the shortest time of each in milliseconds; runs are interleaved, so that clock changes affect all.

        The cache is flushed before each run, as other layers do in the network.
        """
        held, self.held = self.held, []
        store = native.Store(self.kernels)
        binding = Binding(self.address, store.keep, self.hold)
        made = [self.steps(each.make(binding)) for each in candidates]
        arrays = [(plan.Step * len(steps))(*steps) for steps in made]
        times = [float("inf")] * len(made)
        other = np.zeros(FLUSH_FLOATS, np.float32)
        for near, runs in ROUNDS:
            promising = [number for number, time in enumerate(times) if time <= near * min(times)]
            for number in promising * runs:
                other += 1
                steps = arrays[number]
                times[number] = min(times[number], self.pool.time(steps, len(steps), self.slots, 1))
        self.held = held
        return times

    def build_segments(self) -> list[tuple[object, int] | Operation]:
        """Group consecutive kernels into arrays that one call executes."""
        segments: list[tuple[object, int] | Operation] = []
        run: list[plan.Step] = []

        def close() -> None:
            if run:
                segments.append(((plan.Step * len(run))(*run), len(run)))
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
        """Return the program's outputs for float32 tensors."""
        inputs = tuple(each.contiguous() for each in inputs)
        for slot, tensor in enumerate(inputs):
            self.slots[slot] = tensor.data_ptr() or refuse_no_storage(tensor)
        results: list[Tensor | None] = []
        for number, (name, plain) in enumerate(zip(self.program.outputs, self.outputs, strict=True)):
            slot = len(inputs) + number
            if plain.slot == slot:
                result = empty_tensor(self.program.shapes[name])
                self.slots[slot] = result.data_ptr() or refuse_no_storage(result)
                results.append(result)
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

    def tensor(self, plain: PlainArray, shape: tuple[int, ...], inputs: tuple[Tensor, ...]) -> Tensor:
        if plain.buffer is None:
            return inputs[plain.slot].view(shape)
        return self.arena.view(plain.buffer, shape)

    def run_in_torch(self, operation: Operation, inputs: tuple[Tensor, ...]) -> None:
        assert operation.torch
        assert operation.torch_target
        sources = [self.tensor(plain, shape, inputs) for plain, shape in operation.torch_sources]
        with torch.no_grad():
            self.arena.view(*operation.torch_target).copy_(operation.torch(*sources))
