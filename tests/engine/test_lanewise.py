"""The dense kernel vectorised over outputs computes every pixel once and agrees with torch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.test_runtime import activations, available, isas, program, sparse
from tests.engine.ways import alternatives, each_way

from st3.engine import native
from st3.engine.plan.assemble import Alternative
from st3.engine.plan.lanewise import FEW_VECTORS, Rectangle, lane_grid, split_rectangle, vector_spans
from st3.engine.plan.layout import NO_BORDER, Field, best_geometry
from st3.engine.program import Conv
from st3.engine.reference import interpret

pytestmark = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")


@pytest.mark.parametrize("isa", available())
@pytest.mark.parametrize("size", [(1, 1), (2, 2), (7, 7), (14, 14), (3, 17), (13, 5), (9, 1)])
@pytest.mark.parametrize("images", [1, 2, 3])
def test_the_spans_of_all_vectors_cover_every_pixel_once(isa, size, images):
    kernels = native.kernels(isa)
    geometry = best_geometry(images, *size, kernels.lanes)
    field = Field.of((images, 1, *size), geometry, NO_BORDER, kernels.lanes)
    columns = lane_grid(field)[1]
    seen = np.zeros((geometry.vectors, kernels.lanes), int)
    for number, spans in enumerate(vector_spans(field, kernels)):
        for lane, variant in spans:
            for row in range(variant.rows):
                first = lane + row * columns
                seen[number, first : first + variant.columns] += 1
    np.testing.assert_array_equal(seen, field.inside().reshape(seen.shape).astype(int))


@pytest.mark.parametrize("isa", available())
@pytest.mark.parametrize("wide", [1, 5])
def test_vectors_without_a_pixel_are_computed_too(isa, wide):
    """The second convolution keeps the layout of its input, which has two more rows; their vectors have no pixel."""
    images = native.kernels(isa).lanes
    steps = [
        Conv(name="a", sources=("x",), target="a", weight=sparse((4, 3, 1, 1), 1.0, 1), bias=None),
        Conv(name="b", sources=("a",), target="b", weight=sparse((5, 4, 3, 1), 1.0, 2), bias=None),
    ]
    whole = program(steps, {"x": (images, 3, 22, wide)}, ("b",))
    last = len(alternatives(whole, isa)) - 1
    ((_, runtime),) = each_way(whole, last, lanewise, isa)
    x = torch.randn(whole.shapes["x"], generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(runtime.run(x)[0], interpret(whole, x)[0], rtol=1e-4, atol=2e-4)


def lanewise(offered: list[Alternative]) -> list[Alternative]:
    return [each for each in offered if each.kernel == "lanewise"]


def test_a_rectangle_of_lanes_is_split_into_as_few_parts_as_the_kernels_allow():
    assert list(split_rectangle(Rectangle(0, 1, 2, 7), {(2, 7), (1, 1)})) == [Rectangle(0, 1, 2, 7)]
    assert list(split_rectangle(Rectangle(0, 0, 4, 4), {(2, 4), (1, 1)})) == [
        Rectangle(0, 0, 2, 4),
        Rectangle(2, 0, 2, 4),
    ]


@st.composite
def small_images(draw: st.DrawFn) -> tuple[list[Conv], dict[str, tuple[int, ...]]]:
    """A convolution, perhaps with a residual, on images that leave lanes empty."""
    inputs, outputs = draw(st.integers(1, 12)), draw(st.sampled_from([1, 5, 16, 31, 32, 33, 64, 70]))
    kernel, step = draw(st.sampled_from([1, 3, 5])), draw(st.sampled_from([1, 1, 2]))
    high, wide = draw(st.sampled_from([(7, 7), (14, 14), (3, 5), (2, 2), (4, 4), (13, 1), (9, 11), (16, 16)]))
    images = draw(st.sampled_from([1, 1, 2, 3]))
    conv = Conv(
        name="conv", sources=("x", "more") if draw(st.booleans()) else ("x",), target="conv",
        weight=sparse((outputs, inputs, kernel, kernel), 1.0, draw(st.integers(0, 99))),
        bias=sparse((outputs,), 1.0, 3), stride=(step, step), padding=(kernel // 2, kernel // 2), dilation=(1, 1),
        groups=1, activation=draw(activations),
    )  # fmt: skip
    shapes = {"x": (images, inputs, high, wide)}
    if "more" in conv.sources:
        shapes["more"] = (images, outputs, -(-high // step), -(-wide // step))
    return [conv], shapes


@settings(max_examples=40)
@given(made=small_images(), isa=isas, threads=st.sampled_from([1, 2]), seed=st.integers(0, 99))
def test_it_agrees_with_torch(made, isa, threads, seed):
    whole = program(*made, outputs=("conv",))
    geometry = best_geometry(*whole.shapes["conv"][:1], *whole.shapes["conv"][2:], native.kernels(isa).lanes)
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(whole.shapes[name], generator=generator) for name in whole.inputs]
    want = interpret(whole, *inputs)[0]
    ways = list(each_way(whole, 0, lanewise, isa, threads))
    assert ways or geometry.vectors > FEW_VECTORS
    for label, runtime in ways:
        torch.testing.assert_close(runtime.run(*inputs)[0], want, rtol=1e-4, atol=2e-4, msg=label)
