"""Every kernel agrees with torch, for random steps of all kinds and shapes and for all instruction sets."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.engine.ways import alternatives, each_way

from st3.engine import native
from st3.engine.plan import configs
from st3.engine.plan.assemble import Alternative
from st3.engine.plan.make import batch_part
from st3.engine.program import (
    Activation,
    AdaptiveAverage,
    Add,
    Affine,
    AveragePool,
    Concat,
    Conv,
    Elementwise,
    Function,
    GlobalAverage,
    InTorch,
    Linear,
    MaxPool,
    Program,
    Reshape,
    Softmax,
    Step,
)
from st3.engine.reference import interpret
from st3.engine.run import Runtime

pytestmark = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")

ISAS = ("avx512", "avx2", "baseline")


def available() -> list[str]:
    found = []
    for name in ISAS if native.is_built() else ():
        try:
            native.kernels(name)
        except native.NativeError:
            continue
        found.append(name)
    return found


isas = st.sampled_from(available() or ["none"])
activations = st.one_of(st.none(), st.sampled_from(Function).map(lambda each: Activation(each, 0.3)))
densities = st.sampled_from([0.0, 0.05, 0.3, 1.0])


def sparse(shape: tuple[int, ...], density: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    weight = (
        random.standard_normal(shape).astype(np.float32)
        / max(1.0, float(np.prod(shape[1:])) * density) ** 0.5
    )
    return np.where(random.random(shape) < density, weight, np.float32(0))


def program(steps: list[Step], inputs: dict[str, tuple[int, ...]], outputs: tuple[str, ...]) -> Program:
    """Make a program; run it once to find its shapes."""
    shapes = dict(inputs)
    values = {name: torch.zeros(shape) for name, shape in inputs.items()}
    from st3.engine.reference import evaluate

    for step in steps:
        shape = shapes.get(step.target, ())
        values[step.target] = evaluate(step, [values[name] for name in step.sources], shape)
        shapes[step.target] = tuple(values[step.target].shape)
    return Program(steps=tuple(steps), shapes=shapes, inputs=tuple(inputs), outputs=outputs)


def assert_right(made: Program, isa: str | None = None, threads: int = 1, tune: bool = False) -> Runtime:
    """Compare a runtime with the reference on random inputs, twice, since the first run must leave nothing behind."""
    runtime = Runtime(made, threads=threads, tune=tune, isa=isa)
    generator = torch.Generator().manual_seed(7)
    for _ in range(2):
        inputs = [torch.randn(made.shapes[name], generator=generator) for name in made.inputs]
        for got, want in zip(runtime.run(*inputs), interpret(made, *inputs), strict=True):
            assert got.shape == want.shape
            torch.testing.assert_close(got, want, rtol=1e-4, atol=2e-4)
    return runtime


@st.composite
def convolutions(draw: st.DrawFn, name: str = "conv", source: str = "x") -> tuple[Conv, tuple[int, ...]]:
    """A convolution and the shape of its input."""
    kernel = (draw(st.integers(1, 5)), draw(st.integers(1, 5)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    padding = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    inputs, outputs = groups * draw(st.integers(1, 9)), groups * draw(st.integers(1, 9))
    if draw(st.booleans()):  # depthwise
        groups = outputs = inputs
    least = [max(1, (k - 1) * d + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    size = [low + draw(st.integers(0, 19)) for low in least]
    shape = (draw(st.sampled_from([1, 2, 3, 4, 16])), inputs, *size)
    seed = draw(st.integers(0, 9999))
    weight = sparse((outputs, inputs // groups, *kernel), draw(densities), seed)
    bias = draw(st.one_of(st.none(), st.just(sparse((outputs,), 1.0, seed + 1))))
    conv = Conv(
        name=name, sources=(source,), target=name, weight=weight, bias=bias, stride=stride, padding=padding,
        dilation=dilation, groups=groups, activation=draw(activations),
    )  # fmt: skip
    return conv, shape


@settings(max_examples=60)
@given(made=convolutions(), isa=isas, threads=st.sampled_from([1, 2]))
def test_a_convolution_of_any_shape_agrees_with_torch(made, isa, threads):
    conv, shape = made
    assert_right(program([conv], {"x": shape}, ("conv",)), isa, threads)


def assert_every_alternative_is_right(conv: Conv, shape: tuple[int, ...], isa: str) -> set[str]:
    """Compare the best and the worst estimates of every kind of kernel with torch; return the kinds."""
    whole = program([conv], {"x": shape}, ("conv",))
    x = torch.randn(shape)
    want = interpret(whole, x)[0]
    kinds = {alternative.kernel for alternative in alternatives(whole, isa)[0]}

    def some(offered: list[Alternative]) -> list[Alternative]:
        by_kind = [[each for each in offered if each.kernel == kind] for kind in kinds]
        return [each for of in by_kind for each in (of if len(of) < 12 else of[:9] + of[-2:])]

    for label, runtime in each_way(whole, 0, some, isa):
        torch.testing.assert_close(runtime.run(x)[0], want, rtol=1e-4, atol=2e-4, msg=label)
    return kinds


@settings(max_examples=15)
@given(made=convolutions(), isa=isas, cache=st.sampled_from([64, 28 * 1024]))
def test_every_alternative_of_a_convolution_agrees_with_torch(made, isa, cache):
    conv, shape = made
    with patch.object(
        configs, "INPUT_BYTES", cache
    ):  # a small one splits the channels of dense kernels into blocks
        kinds = assert_every_alternative_is_right(conv, shape, isa)
    assert ("dense" in kinds) == (conv.groups == 1)


@settings(max_examples=15)
@given(
    channels=st.integers(1, 40), size=st.tuples(st.integers(3, 40), st.integers(3, 40)), stride=st.integers(1, 2),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)), batch=st.sampled_from([1, 2, 16]), act=activations,
    isa=isas,
)  # fmt: skip
def test_every_alternative_of_a_depthwise_convolution_agrees_with_torch(
    channels, size, stride, padding, batch, act, isa
):
    conv = Conv(
        name="conv", sources=("x",), target="conv", weight=sparse((channels, 1, 3, 3), 0.9, 1),
        bias=sparse((channels,), 1.0, 2), stride=(stride, stride), padding=padding, dilation=(1, 1), groups=channels,
        activation=act,
    )  # fmt: skip
    kinds = assert_every_alternative_is_right(conv, (batch, channels, *size), isa)
    want = {"sparse", "depthwise"} if channels > 1 else {"dense", "depthwise"}  # with so few zeros
    assert kinds - {"lanewise"} == want


@settings(max_examples=30)
@given(
    first=convolutions(), second=convolutions("second", "conv"), isa=isas, threads=st.sampled_from([1, 2]),
    add=st.booleans(), act=activations, seed=st.integers(0, 999),
)  # fmt: skip
def test_convolutions_in_a_row_with_a_residual_agree_with_torch(first, second, isa, threads, add, act, seed):
    conv, shape = first
    begin = program([conv], {"x": shape}, ("conv",))
    _, channels, _height, _width = begin.shapes["conv"]
    # 3×3 and 1×1 as in residual blocks: the same size, so that the result can be added
    same = Conv(
        name="same", sources=("conv",), target="same", weight=sparse((channels, channels, 3, 3), 0.2, seed), bias=None,
        padding=(1, 1), activation=act,
    )  # fmt: skip
    last = Conv(
        name="last", sources=("same", "conv") if add else ("same",), target="last", activation=act,
        weight=sparse((channels, channels, 1, 1), 0.5, seed + 1), bias=sparse((channels,), 1.0, seed),
    )  # fmt: skip
    after = Conv(
        name="after",
        sources=("last",),
        target="after",
        weight=sparse((5, channels, 1, 1), 0.5, seed + 2),
        bias=None,
    )
    outputs = ("last", "after") if seed % 2 else ("after",)
    assert_right(program([conv, same, last, after], {"x": shape}, outputs), isa, threads)


@st.composite
def pools(draw: st.DrawFn) -> tuple[Step, tuple[int, ...]]:
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    common = {
        "kernel": kernel,
        "stride": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "padding": tuple(draw(st.integers(0, k // 2)) for k in kernel),
        "ceil_mode": draw(st.booleans()),
    }
    shape = (
        draw(st.sampled_from([1, 2, 4])),
        draw(st.integers(1, 5)),
        *(k + draw(st.integers(3, 20)) for k in kernel),
    )
    if draw(st.booleans()):
        return MaxPool(name="pool", sources=("a",), target="pool", **common), shape
    counted = draw(st.booleans())
    return AveragePool(name="pool", sources=("a",), target="pool", count_padding=counted, **common), shape


@settings(max_examples=40)
@given(
    made=pools(),
    isa=isas,
    how=st.sampled_from(["alone", "relu", "conv", "conv relu"]),
    threads=st.sampled_from([1, 2]),
)
def test_a_pool_agrees_with_torch_alone_and_behind_a_convolution(made, isa, how, threads):
    pool, shape = made
    relu = Activation(Function.RELU) if "relu" in how else None
    if "conv" in how:
        weight = sparse((shape[1], shape[1], 3, 3), 0.5, 3)
        first: Step = Conv(
            name="a", sources=("x",), target="a", weight=weight, bias=None, padding=(1, 1), activation=relu
        )
    elif relu:
        first = Elementwise(name="a", sources=("x",), target="a", activation=relu)
    else:
        first = Reshape(name="a", sources=("x",), target="a")
    shapes = {"x": shape}
    if isinstance(first, Reshape):
        shapes["a"] = shape
        made_program = Program(
            steps=(first, pool), shapes={**program([first, pool], {"x": shape, "a": shape}, ("pool",)).shapes},
            inputs=("x",), outputs=("pool",),
        )  # fmt: skip
    else:
        made_program = program([first, pool], shapes, ("pool",))
    assert_right(made_program, isa, threads)


@settings(max_examples=40)
@given(
    rows=st.sampled_from([(1,), (2,), (3,), (4,), (5, 7), (16,), (2, 3, 11), (197,)]), inputs=st.integers(1, 70),
    outputs=st.integers(1, 70), density=densities, act=activations, residual=st.booleans(), isa=isas,
    threads=st.sampled_from([1, 2]), seed=st.integers(0, 999),
)  # fmt: skip
@example(
    rows=(1,), inputs=5, outputs=40, density=0.0, act=None, residual=False, isa=available()[-1] if available() else "",
    threads=1, seed=0,
)  # fmt: skip
def test_a_linear_step_agrees_with_torch(rows, inputs, outputs, density, act, residual, isa, threads, seed):
    weight, bias = sparse((outputs, inputs), density, seed), sparse((outputs,), 1.0, seed + 1)
    first = Linear(name="a", sources=("x",), target="a", weight=weight, bias=bias, activation=act)
    square = sparse((outputs, outputs), 0.4, seed + 2)
    sources = ("a", "a") if residual else ("a",)
    second = Linear(name="b", sources=sources, target="b", weight=square, bias=None)
    assert_right(program([first, second], {"x": (*rows, inputs)}, ("b",)), isa, threads)


@settings(max_examples=15)
@given(act=activations, isa=isas, size=st.integers(2, 17), batch=st.sampled_from([1, 2, 16]))
def test_branches_of_a_network_agree_with_torch(act, isa, size, batch):
    """Concat, add, affine, torch functions and averages around convolutions, in one program."""
    a = Conv(
        name="a", sources=("x",), target="a", weight=sparse((6, 3, 3, 3), 0.5, 1), bias=None, padding=(1, 1)
    )
    b = Conv(name="b", sources=("x",), target="b", weight=sparse((4, 3, 1, 1), 0.9, 2), bias=None)
    steps = [
        a,
        b,
        Affine(
            name="scaled", sources=("a",), target="scaled", scale=sparse((6,), 1, 3), shift=sparse((6,), 1, 4),
            activation=act,
        ),
        Concat(name="both", sources=("scaled", "b"), target="both"),
        InTorch(name="roll", sources=("both",), target="roll", function=lambda x: x.roll(1, 2), why="for the test"),
        Add(name="sum", sources=("roll", "both"), target="sum", activation=act),
        Elementwise(name="soft", sources=("sum",), target="soft", activation=Activation(Function.SILU)),
        AdaptiveAverage(name="coarse", sources=("soft",), target="coarse"),
        GlobalAverage(name="mean", sources=("soft",), target="mean"),
        Linear(name="scores", sources=("mean",), target="scores", weight=sparse((9, 10), 0.5, 5), bias=None),
        Softmax(name="softmax", sources=("scores",), target="softmax", axis=1),
    ]  # fmt: skip
    shapes = {"coarse": (batch, 10, min(2, size), min(2, size)), "mean": (batch, 10)}
    values = {"x": torch.zeros(batch, 3, size, size)}
    from st3.engine.reference import evaluate

    for step in steps:
        shape = shapes.get(step.target, ())
        values[step.target] = evaluate(step, [values[name] for name in step.sources], shape)
    made = Program(
        steps=tuple(steps), shapes={name: tuple(value.shape) for name, value in values.items()}, inputs=("x",),
        outputs=("softmax", "coarse", "both"),
    )  # fmt: skip
    assert_right(made, isa)


def test_a_tuned_runtime_computes_the_same_and_reports_its_measurements(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    conv = Conv(
        name="conv",
        sources=("x",),
        target="conv",
        weight=sparse((32, 16, 3, 3), 0.1, 0),
        bias=None,
        padding=(1, 1),
    )
    runtime = assert_right(program([conv], {"x": (1, 16, 20, 20)}, ("conv",)), tune=True)
    (choice,) = runtime.choices()
    assert (choice.name, choice.kind) == ("conv", "Conv")
    assert choice.nonzeros == np.count_nonzero(conv.weight)
    assert choice.macs == choice.nonzeros * 400
    assert all(ms > 0 for ms in choice.milliseconds.values())


def test_results_do_not_change_when_the_runtime_runs_again():
    conv = Conv(name="conv", sources=("x",), target="conv", weight=sparse((4, 2, 3, 3), 0.5, 0), bias=None)
    runtime = Runtime(program([conv], {"x": (1, 2, 8, 8)}, ("conv",)), tune=False)
    x = torch.randn(1, 2, 8, 8)
    (first,) = runtime.run(x)
    kept = first.clone()
    runtime.run(torch.randn(1, 2, 8, 8))
    assert torch.equal(first, kept)


def test_nan_passes_through_a_relu():
    conv = Conv(
        name="conv", sources=("x",), target="conv", weight=np.ones((4, 1, 1, 1), np.float32), bias=None,
        activation=Activation(Function.RELU),
    )  # fmt: skip
    x = torch.tensor([1.0, float("nan"), -1.0, 2.0]).view(1, 1, 2, 2)
    (y,) = Runtime(program([conv], {"x": (1, 1, 2, 2)}, ("conv",)), tune=False).run(x)
    assert torch.equal(y[0, 0].isnan(), x[0, 0].isnan())
    assert y[0, 0, 1].tolist() == [0.0, 2.0]


def test_an_output_that_is_an_input_is_a_copy():
    made = Program(steps=(), shapes={"x": (2, 3)}, inputs=("x",), outputs=("x",))
    x = torch.randn(2, 3)
    (y,) = Runtime(made, tune=False).run(x)
    assert torch.equal(x, y)
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("threads", [1, 2, 4, 7])
def test_a_large_batch_is_executed_in_parts_with_the_same_result(threads):
    conv = Conv(
        name="conv",
        sources=("x",),
        target="conv",
        weight=sparse((8, 4, 3, 3), 0.3, 0),
        bias=None,
        padding=(1, 1),
    )
    mean = GlobalAverage(name="mean", sources=("conv",), target="mean")
    shapes = {"x": (6, 4, 200, 200), "conv": (6, 8, 200, 200), "mean": (6, 8)}
    made = Program(steps=(conv, mean), shapes=shapes, inputs=("x",), outputs=("mean", "conv"))
    assert batch_part(made).shapes["x"] == (1, 4, 200, 200)
    assert_right(made, threads=threads)


@pytest.mark.parametrize("isa", available())
@pytest.mark.parametrize("size", [7, 16, 29])
def test_a_field_without_the_pixels_that_windows_skip_is_not_reused(isa, size):
    common = {"bias": None, "padding": (0, 0)}
    steps = [
        Conv(name="windows", sources=("x",), target="windows", weight=sparse((8, 3, 5, 5), 1.0, 1), **common),
        Conv(name="pixels", sources=("x",), target="pixels", weight=sparse((8, 3, 1, 1), 1.0, 2), **common),
        Elementwise(name="relu", sources=("x",), target="relu", activation=Activation(Function.RELU)),
    ]
    made = program(steps, {"x": (1, 3, size, size)}, ("windows", "pixels", "relu", "mean"))
    mean = GlobalAverage(name="mean", sources=("x",), target="mean")
    assert_right(replace(made, steps=(*made.steps, mean), shapes={**made.shapes, "mean": (1, 3)}), isa)


def test_a_value_may_be_an_output_twice():
    step = Linear(name="y", sources=("x",), target="y", weight=sparse((5, 3), 1.0, 1), bias=None)
    assert_right(program([step], {"x": (1, 3)}, ("y", "y")))
