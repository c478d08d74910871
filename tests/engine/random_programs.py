"""A program, not a test: run random programs with exact buffers and compare with torch.

    python random_programs.py ISA COUNT

Every buffer of the arena and every array that kernels read is a block of its own here, so that a sanitizer sees a step
reach beyond it.
"""

import ctypes
import sys
from typing import Any

import numpy as np
import torch

from st3.engine import execution, memory, native
from st3.engine.chain import Chain
from st3.engine.convolution import Convolution
from st3.engine.program import Activation, Conv, Linear, MaxPool, Program, Step
from st3.engine.reference import evaluate, interpret
from st3.engine.tilewise import Tilewise


def exact(count: int) -> np.ndarray:
    """Return bytes that begin on a cache line and end where their block does; they are never freed."""
    address = ctypes.c_void_p()
    if ctypes.CDLL(None).posix_memalign(ctypes.byref(address), ctypes.c_size_t(64), ctypes.c_size_t(count)):
        raise MemoryError(count)
    block: ctypes.Array[ctypes.c_uint8] = (ctypes.c_uint8 * count).from_address(address.value or 0)
    made = np.ctypeslib.as_array(block)
    made[:] = 0
    return made


class Apart:
    """An arena whose buffers lie apart, each in a block of its own size."""

    def __init__(self, kernels: native.Kernels, buffers: list[memory.Buffer]) -> None:
        self.floats = 0
        self.blocks = {id(buffer): exact(4 * buffer.size).view(np.float32) for buffer in buffers if buffer.size}

    def address(self, buffer: memory.Buffer) -> int:
        return int(self.blocks[id(buffer)].ctypes.data)

    def view(self, buffer: memory.Buffer, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.from_numpy(self.blocks[id(buffer)])[: int(np.prod(shape))].view(shape)


class Single:
    """A store whose arrays lie apart."""

    def __init__(self, kernels: native.Kernels) -> None:
        pass

    def keep(self, array: np.ndarray[Any, Any]) -> int:
        block = exact(max(1, array.nbytes))
        block[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return int(block.ctypes.data)


def weights(random: np.random.Generator, *shape: int) -> np.ndarray:
    density = random.choice([0.0, 0.1, 0.5, 1.0])
    return np.where(random.random(shape) < density, random.standard_normal(shape), 0).astype(np.float32)


def some_program(random: np.random.Generator) -> Program:
    """Return one to four steps, each on the last one's result."""
    shape = (int(random.choice([1, 2, 16])), int(random.integers(1, 8)), *map(int, random.integers(3, 24, 2)))
    steps: list[Step] = []
    values = {"x": torch.zeros(shape)}
    last = "x"
    for number in range(random.integers(1, 5)):
        name = f"s{number}"
        _, channels, high, wide = values[last].shape
        activation = (
            Activation(str(random.choice(["relu", "relu6", "gelu", "silu"])))
            if random.random() < 0.7
            else None
        )
        kind = random.choice(["conv", "depthwise", "pool", "residual"])
        size = int(min(random.integers(1, 5), high, wide))
        if kind == "pool":
            step: Step = MaxPool(
                name=name,
                sources=(last,),
                target=name,
                kernel=(size, size),
                stride=(2, 1),
                padding=(size // 2, 0),
            )
        else:
            groups = channels if kind == "depthwise" else 1
            outputs = channels if kind != "conv" else int(random.integers(1, 40))
            stride = (1, 1) if kind == "residual" else tuple(map(int, random.integers(1, 4, 2)))
            size = 3 if kind == "residual" else size
            padding = (1, 1) if kind == "residual" else (int(random.integers(0, 3)), size // 2)
            step = Conv(
                name=name, sources=(last, last) if kind == "residual" else (last,), target=name, activation=activation,
                weight=weights(random, outputs, channels // groups, size, size), bias=weights(random, outputs),
                stride=stride, padding=padding, groups=groups,
            )  # fmt: skip
        result = evaluate(step, [values[each] for each in step.sources], ())
        if 0 in result.shape:
            continue
        steps.append(step)
        values[name] = result
        last = name
    if random.random() < 0.3:
        step = Linear(
            name="rows", sources=(last,), target="rows", bias=None,
            weight=weights(random, int(random.integers(1, 40)), values[last].shape[-1]),
        )  # fmt: skip
        steps.append(step)
        values["rows"] = evaluate(step, [values[last]], ())
        last = "rows"
    shapes = {name: tuple(value.shape) for name, value in values.items()}
    return Program(steps=tuple(steps), shapes=shapes, inputs=("x",), outputs=(last,))


def any_way(kind: Any, random: np.random.Generator) -> None:
    """Compute steps of a kind in a way taken at random: scratch is then as large as this way asks for, no larger."""
    all_ways = kind.alternatives

    def one_way(self: Any) -> list[Any]:
        ways = all_ways(self)
        return [ways[random.integers(len(ways))]]

    kind.alternatives = one_way


def main(isa: str, count: int) -> None:
    try:
        native.kernels(isa)
    except native.NativeError:
        print(f"{isa} is not here")
        return
    execution.Arena = Apart  # type: ignore[assignment, misc]
    native.Store = Single  # type: ignore[assignment, misc]
    for kind in (Convolution, Chain, Tilewise):
        any_way(kind, np.random.default_rng(0))
    for seed in range(count):
        random = np.random.default_rng(seed)
        program = some_program(random)
        runtime = execution.Execution(program, threads=1 + seed % 2, isa=isa)
        x = torch.from_numpy(random.standard_normal(program.shapes["x"]).astype(np.float32))
        got, want = runtime.run(x)[0], interpret(program, x)[0]
        if not torch.allclose(got, want, rtol=1e-3, atol=1e-3):
            raise SystemExit(f"program {seed} differs by {(got - want).abs().max()}: {program.steps}")
    print(f"{count} programs")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
