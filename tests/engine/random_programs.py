"""Run random programs with exact buffers and compare with torch; a separate program, run by test_sanitizers.py.

    python random_programs.py ISA COUNT [THREADS]

Every step uses a random alternative.
"""

import sys

import numpy as np
import torch
from tests.engine.exact_blocks import use_exact_blocks
from tests.engine.ways import Chooser

from st3.engine import native
from st3.engine.plan.make import make_plan
from st3.engine.plan.operation import Alternative
from st3.engine.program import Activation, Conv, Function, Linear, MaxPool, Program, Step
from st3.engine.reference import evaluate, interpret
from st3.engine.run import Runtime


def weights(random: np.random.Generator, *shape: int) -> np.ndarray:
    density = random.choice([0.0, 0.1, 0.5, 1.0])
    return np.where(random.random(shape) < density, random.standard_normal(shape), 0).astype(np.float32)


def some_program(random: np.random.Generator) -> Program:
    """Return a program of one to four steps, each reading the previous one's result."""
    shape = (int(random.choice([1, 2, 16])), int(random.integers(1, 8)), *map(int, random.integers(3, 24, 2)))
    steps: list[Step] = []
    values = {"x": torch.zeros(shape)}
    last = "x"
    for number in range(random.integers(1, 5)):
        name = f"s{number}"
        _, channels, high, wide = values[last].shape
        activation = (
            Activation(list(Function)[random.integers(len(Function))]) if random.random() < 0.7 else None
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


def main(isa: str, count: int, threads: int = 2) -> None:
    try:
        native.kernels(isa)
    except native.NativeError:
        print(f"{isa} is not available")
        return
    use_exact_blocks()
    choices = np.random.default_rng(0)

    def any_alternative(number: int, offered: list[Alternative]) -> Alternative:
        return offered[choices.integers(len(offered))]

    for seed in range(count):
        random = np.random.default_rng(seed)
        program = some_program(random)
        runtime = Runtime.of(make_plan(program, 1 + seed % threads, Chooser(any_alternative), isa))  # type: ignore[arg-type]
        x = torch.from_numpy(random.standard_normal(program.shapes["x"]).astype(np.float32))
        got, want = runtime.run(x)[0], interpret(program, x)[0]
        if not torch.allclose(got, want, rtol=1e-3, atol=1e-3):
            raise SystemExit(f"program {seed} differs by {(got - want).abs().max()}: {program.steps}")
    print(f"{count} programs")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
