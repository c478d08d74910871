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
from st3.engine.plan.assemble import Alternative
from st3.engine.plan.make import make_plan
from st3.engine.program import (
    Activation,
    Add,
    Affine,
    Conv,
    Function,
    GlobalAverage,
    GroupNorm,
    Linear,
    MaxPool,
    Multiply,
    Norm,
    Program,
    Resample,
    Select,
    Step,
)
from st3.engine.reference import evaluate, interpret
from st3.engine.run import Runtime


def weights(random: np.random.Generator, *shape: int) -> np.ndarray:
    density = random.choice([0.0, 0.1, 0.5, 1.0])
    return np.where(random.random(shape) < density, random.standard_normal(shape), 0).astype(np.float32)


def mixture(random: np.random.Generator, size: int) -> np.ndarray:
    """Return a matrix that resamples `size` pixels: every result is a mean of one or two of them."""
    made = int(random.integers(1, 2 * size + 1))
    matrix = np.zeros((made, size), np.float32)
    for _ in range(2):
        matrix[np.arange(made), random.integers(size, size=made)] += 0.5
    return matrix


def light_step(random: np.random.Generator, name: str, source: str, shape: tuple[int, ...]) -> Step:
    """Return a norm, a selection of channels, or resampled pixels."""
    channels, where = shape[1], {"name": name, "sources": (source,), "target": name}
    scale, shift = weights(random, channels), weights(random, channels)
    groups = [each for each in range(1, channels + 1) if channels % each == 0]
    kinds = [
        lambda: Norm(**where, scale=scale, shift=shift, eps=0.1, axis=1, is_centred=bool(random.integers(2))),
        lambda: GroupNorm(**where, scale=scale, shift=shift, eps=0.1, groups=int(random.choice(groups))),
        lambda: Select(**where, index=random.permutation(channels)[: 1 + channels // 2]),
        lambda: Resample(**where, rows=mixture(random, shape[2]), columns=mixture(random, shape[3])),
        lambda: Affine(**where, scale=scale, shift=shift),
    ]
    return kinds[random.integers(len(kinds))]()


def end_in_rows(
    random: np.random.Generator, steps: list[Step], values: dict[str, torch.Tensor], last: str
) -> str:
    """Add a linear layer over the last axis, and steps on its rows."""
    columns = int(random.integers(1, 40))
    where = {"sources": (last,), "bias": None, "weight": weights(random, columns, values[last].shape[-1])}
    scale, shift = weights(random, columns), weights(random, columns)
    gate = Activation(Function.SILU)
    made: list[Step] = [
        Linear(name="rows", target="rows", **where),
        Norm(name="norm", sources=("rows",), target="norm", scale=scale, shift=None, eps=0.1),
        Multiply(name="product", sources=("norm", "rows"), target="product", activation=gate),
        Affine(name="affine", sources=("product",), target="affine", scale=scale, shift=shift, axis=-1),
        Select(
            name="part", sources=("affine",), target="part", index=np.arange(columns // 3, columns), axis=-1
        ),
    ]
    for step in made[: random.integers(1, len(made) + 1)]:
        values[step.target] = evaluate(step, [values[each] for each in step.sources], ())
        steps.append(step)
    return steps[-1].target


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
            Activation(list(Function)[random.integers(len(Function))], 0.3) if random.random() < 0.7 else None
        )
        kind = random.choice(["conv", "depthwise", "pool", "residual", "light", "gate"])
        size = int(min(random.integers(1, 5), high, wide))
        step: Step
        if kind == "light":
            step = light_step(random, name, last, values[last].shape)
        elif kind == "gate":  # channels scaled by their means
            mean = GlobalAverage(name=f"m{number}", sources=(last,), target=f"m{number}")
            steps.append(mean)
            values[mean.target] = evaluate(mean, [values[last]], (values[last].shape[0], channels, 1, 1))
            product = random.choice([Add, Multiply])
            step = product(name=name, sources=(last, mean.target), target=name, activation=activation)
        elif kind == "pool":
            step = MaxPool(
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
    if random.random() < 0.5:
        last = end_in_rows(random, steps, values, last)
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
