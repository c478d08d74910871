"""Two steps as one operation: every alternative agrees with torch."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.test_runtime import activations, isas, program, sparse
from tests.engine.ways import alternatives, each_way
from torch import nn

import st3
from st3.engine import native
from st3.engine.plan import configs, fused
from st3.engine.plan.assemble import Alternative
from st3.engine.plan.lower import convolutions
from st3.engine.program import Activation, AveragePool, Conv, MaxPool, Program, Step
from st3.engine.reference import interpret

pytestmark = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")

ALTERNATIVES = 14  # tried for each pair


def conv(source: str, target: str, weight, act: Activation | None, step: int = 1, groups: int = 1) -> Conv:
    return Conv(
        name=target, sources=(source,), target=target, weight=weight, bias=sparse((len(weight),), 1.0, 3),
        stride=(step, step), padding=(weight.shape[2] // 2, weight.shape[3] // 2), dilation=(1, 1), groups=groups,
        activation=act,
    )  # fmt: skip


@st.composite
def pairs(draw: st.DrawFn) -> Program:
    """A convolution, and a step that may be fused with it."""
    channels = draw(st.integers(1, 20))
    outputs = draw(st.sampled_from([1, 3, 7, 8, 9, 13, 16, 17, 24, 33, 40]))
    size, density = draw(st.sampled_from([1, 1, 3])), draw(st.sampled_from([0.05, 0.3, 0.55, 1.0]))
    shape = (
        draw(st.sampled_from([1, 2, 3, 16])),
        channels,
        draw(st.integers(8, 26)),
        draw(st.integers(8, 26)),
    )
    first = conv(
        "x",
        "a",
        sparse((outputs, channels, size, size), density, 1),
        draw(activations),
        draw(st.integers(1, 2)),
    )
    return program([first, draw(readers(outputs))], {"x": shape}, ("b",))


@st.composite
def readers(draw: st.DrawFn, outputs: int) -> Step:
    kind = draw(st.sampled_from(["depthwise", "largest", "mean", "pointwise"]))
    act, step = draw(activations), draw(st.integers(1, 2))
    if kind == "depthwise":
        size = draw(st.sampled_from([3, 3, 5]))
        return conv("a", "b", sparse((outputs, 1, size, size), 0.9, 2), act, step, outputs)
    if kind == "pointwise":
        return conv("a", "b", sparse((draw(st.integers(1, 20)), outputs, 1, 1), 0.3, 2), act)
    windows = {"kernel": (3, 2), "stride": (2, step), "padding": (1, 1)}
    if kind == "largest":
        return MaxPool(name="b", sources=("a",), target="b", **windows)
    return AveragePool(name="b", sources=("a",), target="b", count_padding=draw(st.booleans()), **windows)


@settings(max_examples=30)
@given(
    made=pairs(), isa=isas, threads=st.sampled_from([1, 2]), inputs=st.sampled_from([64, 700, 28 * 1024]),
    middle=st.sampled_from([1, 20_000, 1 << 20]), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_alternative_for_two_steps_agrees_with_torch(made, isa, threads, inputs, middle, seed):
    with (
        patch.object(configs, "INPUT_BYTES", inputs),
        patch.object(fused, "MIDDLE_BYTES", middle),
        patch.object(convolutions, "LARGE_VALUE_BYTES", -1),
    ):
        x = torch.randn(made.shapes["x"], generator=torch.Generator().manual_seed(seed))
        want = interpret(made, x)[0]
        for number in range(len(alternatives(made, isa, threads))):
            for label, runtime in each_way(made, number, some, isa, threads):
                runtime.sessions[0].arena.fill_(float("nan"))  # nothing is read before it is written
                torch.testing.assert_close(runtime.run(x)[0], want, rtol=1e-3, atol=1e-3, msg=label)


def some(offered: list[Alternative]) -> list[Alternative]:
    """Return some of the ways to compute two steps as one."""
    fused = [each for each in offered if each.second_kernel]
    return fused[:: -(-len(fused) // ALTERNATIVES)] if fused else []


@pytest.mark.parametrize(("channels", "side"), [(24, 224), (10, 256)])
def test_a_dense_convolution_with_large_planes_before_a_pool(channels, side):
    model = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)).eval()
    x = torch.randn(1, 3, side, side)
    fast = st3.engine.compile(model, x, threads=1, tune=False)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
