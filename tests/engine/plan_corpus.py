"""Small programs whose plans have every kind of step, each planned with random alternatives."""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from st3.engine import native, schema
from st3.engine.optimise import Ranges, quantise
from st3.engine.plan.assemble import Plan
from st3.engine.plan.lower import convolutions
from st3.engine.plan.make import Planned, make_plan
from st3.engine.program import (
    Activation,
    Add,
    Affine,
    Attention,
    AveragePool,
    Concat,
    Conv,
    Elementwise,
    Function,
    GlobalAverage,
    GroupNorm,
    Linear,
    Lookup,
    MaxPool,
    Multiply,
    Norm,
    Place,
    Program,
    Resample,
    Step,
    View,
)
from st3.engine.saving import Tensor, write_run_file

__all__ = ["kinds_of", "plans", "verify", "write"]


class AnyAlternative:
    """A tuner that measures nothing and chooses at random."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random

    def choose(
        self, key: str, alternatives: list[Any], time: Callable[..., Any]
    ) -> tuple[Any, dict[str, float]]:
        kernel = self.random.choice(sorted({each.kernel for each in alternatives}))
        of_kernel = [each for each in alternatives if each.kernel == kernel]
        return of_kernel[self.random.integers(len(of_kernel))], {}


class _Maker:
    """Appends steps to a program; each returns the name of its value."""

    def __init__(
        self,
        random: np.random.Generator,
        shape: tuple[int, ...],
        densities: tuple[float, ...] = (0.05, 0.3, 1.0),
    ) -> None:
        self.random, self.steps, self.shapes, self.densities = random, list[Step](), {"x": shape}, densities

    def add(self, kind: type[Step], shape: tuple[int, ...], *sources: str, **fields: Any) -> str:
        name = f"v{len(self.steps)}"
        self.steps.append(kind(name=name, sources=sources, target=name, **fields))
        self.shapes[name] = shape
        return name

    def weights(self, *shape: int) -> np.ndarray:
        density = self.random.choice(self.densities)
        kept = self.random.random(shape) < density
        return np.where(kept, self.random.standard_normal(shape), 0).astype(np.float32)

    def activation(self) -> Activation | None:
        return (
            Activation(list(Function)[self.random.integers(len(Function))])
            if self.random.random() < 0.6
            else None
        )

    def conv(
        self,
        source: str,
        outputs: int,
        size: int = 3,
        stride: int = 1,
        depthwise: bool = False,
        residual: str = "",
    ) -> str:
        images, inputs, high, wide = self.shapes[source]
        outputs = inputs if depthwise else outputs
        shape = (images, outputs, -(-high // stride), -(-wide // stride))
        return self.add(
            Conv, shape, *filter(None, (source, residual)), activation=self.activation(), stride=(stride, stride),
            weight=self.weights(outputs, 1 if depthwise else inputs, size, size), bias=self.weights(outputs),
            padding=(size // 2, size // 2), groups=inputs if depthwise else 1,
        )  # fmt: skip

    def linear(self, source: str, outputs: int, residual: str = "") -> str:
        *rows, inputs = self.shapes[source]
        return self.add(
            Linear, (*rows, outputs), *filter(None, (source, residual)), activation=self.activation(),
            weight=self.weights(outputs, inputs), bias=self.weights(outputs),
        )  # fmt: skip

    def program(self, *outputs: str) -> Program:
        return Program(steps=tuple(self.steps), shapes=self.shapes, inputs=("x",), outputs=outputs)


def _pictures(random: np.random.Generator) -> Program:
    """Convolutions of every kind, pooling, a branch, two outputs."""
    make = _Maker(random, (int(random.choice([1, 2, 16])), 3, *map(int, random.integers(3, 12, 2))))
    a = make.conv("x", int(random.integers(3, 12)))
    b = make.conv(a, make.shapes[a][1], residual=a)
    c = make.conv(b, 0, stride=int(random.integers(1, 3)), depthwise=True)
    d = make.conv(make.conv(c, 9, size=1), 6, size=1)
    images, channels, high, wide = make.shapes[d]
    e = make.add(
        Affine, make.shapes[d], d, scale=make.weights(channels), shift=make.weights(channels),
        activation=make.activation(),
    )  # fmt: skip
    f = make.add(Concat, (images, 2 * channels, high, wide), d, e)
    g = make.add(Elementwise, make.shapes[f], f, activation=Activation(Function.SILU))
    h = make.add(Add, make.shapes[f], f, g, activation=make.activation())
    pool = MaxPool if random.random() < 0.5 else AveragePool
    i = make.add(pool, (images, 2 * channels, high, wide), h, kernel=(3, 3), stride=(1, 1), padding=(1, 1))
    j = make.add(GlobalAverage, (images, 2 * channels), i)
    return make.program(make.linear(j, 5), i)


def _chains(random: np.random.Generator) -> Program:
    """A convolution before a depthwise convolution, another one before a pooling."""
    make = _Maker(random, (int(random.choice([1, 4])), 4, *map(int, random.integers(6, 16, 2))))
    a = make.conv(
        make.conv("x", int(random.integers(8, 20))), 0, stride=int(random.integers(1, 3)), depthwise=True
    )
    b = make.conv(a, int(random.integers(3, 12)), size=int(random.choice([1, 3])))
    images, channels, high, wide = make.shapes[b]
    pool = MaxPool if random.random() < 0.5 else AveragePool
    shape = (images, channels, (high - 1) // 2 + 1, (wide - 1) // 2 + 1)
    return make.program(make.add(pool, shape, b, kernel=(3, 3), stride=(2, 2), padding=(1, 1)))


def _pairs(random: np.random.Generator) -> Program:
    """Two sparse 1x1 convolutions, one after the other."""
    make = _Maker(random, (1, 16, *map(int, random.integers(8, 16, 2))), densities=(0.05, 0.2))
    return make.program(make.conv(make.conv("x", 24, size=1), 12, size=1))


def _matrices(random: np.random.Generator) -> Program:
    """Linear layers with few rows or many, and a sum."""
    rows = int(random.choice([1, 3, 4, 37]))
    make = _Maker(random, (rows, int(random.integers(5, 40))))
    a = make.linear("x", int(random.integers(5, 40)))
    b = make.linear(a, make.shapes[a][1], residual=a)
    return make.program(make.linear(b, 7), b)


def _gates(random: np.random.Generator) -> Program:
    """A depthwise convolution alone, a gate of one number per channel, a product, norms, resampling."""
    make = _Maker(random, (int(random.choice([1, 2, 16])), 4, *map(int, random.integers(3, 12, 2))))
    a = make.conv(make.conv("x", 0, depthwise=True), 8)
    images, channels, *_ = make.shapes[a]
    mean = make.add(GlobalAverage, (images, channels, 1, 1), a)
    gate = make.conv(mean, channels, size=1)
    b = make.add(Multiply, make.shapes[a], a, gate, activation=make.activation())
    c = make.add(Multiply, make.shapes[a], a, b)
    scale, shift = make.weights(channels), make.weights(channels)
    d = make.add(GroupNorm, make.shapes[a], c, scale=scale, shift=shift, eps=1e-5, groups=2)
    e = make.add(Norm, make.shapes[a], d, scale=scale, shift=None, eps=1e-5, axis=1, is_centred=False)
    rows, columns = (_mixture(random, 2 * size + 1, size) for size in make.shapes[e][2:])
    f = make.add(Resample, (images, channels, len(rows), len(columns)), e, rows=rows, columns=columns)
    return make.program(make.conv(f, 5))


def _mixture(random: np.random.Generator, size: int, of: int) -> np.ndarray:
    """Return a matrix that makes `size` pixels of others, each the mean of two."""
    pairs = random.integers(of, size=(2, size))
    return (np.eye(of)[pairs].sum(0) / 2).astype(np.float32)


def _tokens(random: np.random.Generator) -> Program:
    """A block of a transformer without attention, on few rows or many."""
    rows, width = int(random.choice([1, 3, 4, 37])), int(random.integers(5, 40))
    make = _Maker(random, (rows, width))
    a = make.add(
        Norm, (rows, width), "x", scale=make.weights(width), shift=make.weights(width), eps=1e-5,
    )  # fmt: skip
    b = make.add(Multiply, (rows, 30), make.linear(a, 30), make.linear(a, 30), activation=make.activation())
    return make.program(make.add(Add, (rows, width), make.linear(b, width), "x"))


def plans(count: int, isa: str) -> Iterator[Planned]:
    """Yield plans of random programs, the same ones every time."""
    before, convolutions.LARGE_VALUE_BYTES = convolutions.LARGE_VALUE_BYTES, 0  # pairs of small values, too
    try:
        for seed in range(count):
            random = np.random.default_rng(seed)
            program = MAKERS[seed % len(MAKERS)](random)
            yield make_plan(program, 1 + seed % 3, AnyAlternative(random), isa)  # type: ignore[arg-type]
    finally:
        convolutions.LARGE_VALUE_BYTES = before


def _decoder(random: np.random.Generator) -> Program:
    """Token ids to rows, their keys into a state, attention to all of it: up to a place, by a mask, or causal."""
    rows, heads, width, length = (
        1 + int(random.integers(5)),
        2,
        int(random.integers(1, 40)),
        5 + int(random.integers(9)),
    )
    make = _Maker(random, (2 * rows,))  # the bits of int64 numbers
    a = make.add(Lookup, (rows, heads * width), "x", table=make.weights(length, heads * width))
    seen = View((1, heads, rows, width), (0, width, heads * width, 1))
    make.shapes["keys"] = (1, heads, length, width)
    keys = make.add(Place, make.shapes["keys"], "keys", a, "x", rows=seen, axis=2)
    cached = View((1, heads, length, width), (0, length * width, width, 1))
    more: dict[str, Any] = {"keys": cached, "values": cached}
    sources = [a, keys, keys]
    way = int(random.integers(3))
    if way == 0:
        more |= {"until": View((1, rows), (0, 1))}
        sources.append("x")
    elif way == 1:
        sources.append(make.linear(a, length))
        more |= {"mask": View((1, heads, rows, length), (0, 0, length, 1))}
    else:
        more |= {"keys": seen, "values": seen, "is_causal": True}
        sources = [a, a, a]
    b = make.add(Attention, (1, rows, heads, width), *sources, query=seen, scale=0.3, **more)
    program = make.program(b, keys)
    return replace(program, inputs=("x", "keys"), state_count=1)


def _bytes(random: np.random.Generator) -> Program:
    """Convolutions of bytes of every kind, a maximum of bytes, a residual, and a step in float32 between them."""
    make = _Maker(random, (int(random.choice([1, 2, 16])), 3, *map(int, random.integers(8, 14, 2))))
    a = make.conv("x", int(random.integers(3, 12)))
    b = make.conv(a, make.shapes[a][1], residual=a)
    images, channels, high, wide = make.shapes[b]
    pooled = (images, channels, (high - 1) // 2 + 1, (wide - 1) // 2 + 1)
    c = make.add(MaxPool, pooled, b, kernel=(3, 3), stride=(2, 2), padding=(1, 1))
    d = make.conv(make.conv(c, 0, depthwise=True), 9, size=1)
    e = make.add(Elementwise, make.shapes[d], d, activation=Activation(Function.TANH))
    program = make.program(make.conv(e, 6, stride=2))
    ranges = Ranges()
    ranges.measure(program, [torch.from_numpy(random.standard_normal(make.shapes["x"]).astype(np.float32))])
    return quantise(program, ranges)


MAKERS = (_pictures, _chains, _matrices, _pairs, _gates, _tokens, _decoder, _bytes)


def kinds_of(plan: Plan) -> set[str]:
    """Return the kinds of a plan's steps and of their parts."""
    both = plan.steps + plan.nested
    steps = (schema.Step * (len(both) // ctypes.sizeof(schema.Step))).from_buffer_copy(both)
    return {schema.schema().kinds[step.kind] for step in steps}


def verify(planned: Planned) -> str:
    """Return the verifier's complaint about a plan, or nothing."""
    structure, error = planned.plan.structure(), ctypes.create_string_buffer(512)
    native.library().st3_verify(
        ctypes.addressof(structure), planned.kernels.address, len(planned.inputs), len(planned.outputs), error
    )
    return error.value.decode()


def write(folder: Path, count: int, isa: str) -> list[Path]:
    """Write the plans to files, one each."""
    paths = []
    for number, planned in enumerate(plans(count, isa)):
        paths.append(folder / f"{isa}-{number}.st3run")
        inputs = [Tensor(name, shape) for name, shape in planned.inputs.items()]
        outputs = [Tensor(str(place), shape) for place, shape in enumerate(planned.outputs)]
        states = [Tensor(str(place), shape) for place, shape in enumerate(planned.states)]
        write_run_file(paths[-1], inputs, outputs, states, [planned])
    return paths
