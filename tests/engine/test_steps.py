"""Products, sums, norms, selections and resampling agree with torch, alone and behind a layer."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.engine.test_runtime import activations, assert_right, isas, program, sparse
from torch import nn

import st3
from st3.engine import native
from st3.engine.program import (
    Add,
    Affine,
    Conv,
    GroupNorm,
    Linear,
    Multiply,
    Norm,
    Program,
    Resample,
    Select,
    Step,
)
from st3.engine.run import Runtime

pytestmark = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")

images = st.tuples(
    st.sampled_from([1, 2, 3, 4, 16]), st.sampled_from([1, 6, 17]), st.integers(1, 9), st.integers(1, 21)
)
matrices = st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 3, 5, 40]), st.sampled_from([1, 3, 16, 50]))
threads = st.sampled_from([1, 2])


def conv(channels: int) -> Conv:
    weight = sparse((channels, channels, 1, 1), 0.5, 1)
    return Conv(name="conv", sources=("x",), target="conv", weight=weight, bias=sparse((channels,), 1.0, 2))


def linear(columns: int) -> Linear:
    weight = sparse((columns, columns), 0.5, 1)
    return Linear(name="linear", sources=("x",), target="linear", weight=weight, bias=None)


@settings(max_examples=40)
@given(
    shape=images, kind=st.sampled_from([Add, Multiply]), over=st.sampled_from(["none", "pixels", "channels"]),
    act=activations, isa=isas, threads=threads,
)  # fmt: skip
def test_a_sum_or_product_of_images_agrees_with_torch(shape, kind, over, act, isa, threads):
    others = {"none": shape, "pixels": (*shape[:2], 1, 1), "channels": (shape[0], 1, *shape[2:])}
    step = kind(name="y", sources=("conv", "other"), target="y", activation=act)
    inputs = {"x": shape, "other": others[over]}
    assert_right(program([conv(shape[1]), step], inputs, ("y",)), isa, threads)


@settings(max_examples=40)
@given(
    shape=matrices, kind=st.sampled_from([Add, Multiply]), is_single=st.booleans(), act=activations, isa=isas,
    threads=threads,
)  # fmt: skip
def test_a_sum_or_product_of_rows_agrees_with_torch(shape, kind, is_single, act, isa, threads):
    step = kind(name="y", sources=("linear", "other"), target="y", activation=act)
    inputs = {"x": shape, "other": (*shape[:-1], 1) if is_single else shape}
    assert_right(program([linear(shape[-1]), step], inputs, ("y",)), isa, threads)


def one_step(step: Step, shape: tuple[int, ...], target: tuple[int, ...] | None = None) -> Program:
    """Return a program of a layer and a step that reads it."""
    layer = conv(shape[1]) if step.sources == ("conv",) else linear(shape[-1])
    made = program([layer], {"x": shape}, ("y",))
    shapes = {**made.shapes, "y": target or shape}
    return Program(steps=(layer, step), shapes=shapes, inputs=("x",), outputs=("y",))


@settings(max_examples=40)
@given(shape=matrices, centred=st.booleans(), has_scale=st.booleans(), isa=isas, threads=threads)
def test_a_norm_of_rows_agrees_with_torch(shape, centred, has_scale, isa, threads):
    scale = sparse((shape[-1],), 1.0, 3) if has_scale else None
    shift = sparse((shape[-1],), 1.0, 4) if has_scale and centred else None
    norm = Norm(
        name="y", sources=("linear",), target="y", scale=scale, shift=shift, eps=1e-2, is_centred=centred
    )
    assert_right(one_step(norm, shape), isa, threads)


def test_a_norm_is_torchs_layer_norm_even_far_from_zero():
    x = 1000 + torch.randn(7, 300)
    norm = Norm(name="y", sources=("x",), target="y", scale=None, shift=None, eps=1e-5)
    for rows in (2, 7):
        made = Program(
            steps=(norm,), shapes={"x": (rows, 300), "y": (rows, 300)}, inputs=("x",), outputs=("y",)
        )
        (got,) = Runtime(made, tune=False).run(x[:rows].contiguous())
        want = torch.layer_norm(x[:rows].double(), (300,)).float()
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


@settings(max_examples=30)
@given(shape=images, groups=st.sampled_from([1, 2, 3]), isa=isas, threads=threads)
def test_norms_of_images_agree_with_torch(shape, groups, isa, threads):
    channels = shape[1] if shape[1] % groups else groups * 2
    shape = (shape[0], channels, *shape[2:])
    groups = groups if channels % groups == 0 else 1
    assume(math.prod(shape) > shape[0] * groups)  # torch normalises no single number
    where = {"name": "y", "sources": ("conv",), "target": "y", "eps": 1e-2}
    where |= {"scale": sparse((channels,), 1.0, 3), "shift": sparse((channels,), 1.0, 4)}
    assert_right(one_step(GroupNorm(groups=groups, **where), shape), isa, threads)
    assert_right(one_step(Norm(axis=1, **where), shape), isa, threads)


def test_a_group_norm_of_constant_channels_is_its_shift():
    norm = nn.GroupNorm(4, 4).eval()
    with torch.no_grad():
        norm.bias.copy_(torch.arange(4.0))
    x = torch.tensor([0.532, -0.357, 1e3, 0.1]).view(1, 4, 1, 1).expand(2, 4, 6, 5).contiguous()
    wanted = torch.arange(4.0).view(1, 4, 1, 1).expand_as(x)
    torch.testing.assert_close(st3.engine.compile(norm, x, tune=False)(x), wanted, rtol=0, atol=1e-6)


def mixture(seed, size, of):
    """Return a matrix whose rows have one to three numbers; their sum is one."""
    random = np.random.default_rng(seed)
    matrix = np.zeros((size, of), np.float32)
    for row in matrix:
        row[random.integers(of, size=random.integers(1, 4))] = random.random() + 0.1
    return matrix / matrix.sum(axis=1, keepdims=True)


@settings(max_examples=30)
@given(
    shape=images, factors=st.tuples(st.integers(1, 3), st.integers(1, 4)), isa=isas, seed=st.integers(0, 9)
)
def test_resampled_images_and_selected_channels_agree_with_torch(shape, factors, isa, seed):
    where = {"name": "y", "sources": ("conv",), "target": "y"}
    large = (*shape[:2], shape[2] * factors[0], shape[3] * factors[1])
    rows, columns = (mixture(seed + axis, large[axis], shape[axis]) for axis in (2, 3))
    assert_right(one_step(Resample(rows=rows, columns=columns, **where), shape, large), isa)
    index = np.random.default_rng(seed).permutation(shape[1])[: 1 + shape[1] // 2]
    assert_right(one_step(Select(index=index, **where), shape, (shape[0], len(index), *shape[2:])), isa)


@settings(max_examples=30)
@given(shape=matrices, act=activations, isa=isas, threads=threads, begin=st.integers(0, 2))
def test_rows_are_scaled_and_sliced_as_in_torch(shape, act, isa, threads, begin):
    columns = shape[-1]
    where = {"name": "y", "sources": ("linear",), "target": "y"}
    scale, shift = sparse((columns,), 1.0, 3), sparse((columns,), 1.0, 4)
    step = Affine(scale=scale, shift=shift, axis=-1, activation=act, **where)
    assert_right(one_step(step, shape), isa, threads)
    index = np.arange(min(begin, columns - 1), columns)
    part = Select(index=index, axis=-1, **where)
    assert_right(one_step(part, shape, (*shape[:-1], len(index))), isa, threads)
