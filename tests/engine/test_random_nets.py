"""Compiled random sparse networks compute the same as torch."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.odd_models import randomise
from tests.engine.outputs import assert_close
from tests.engine.plan_corpus import verify
from tests.engine.small_networks import ChannelNorm, Excitation
from torch import Tensor, nn

import st3
from st3.engine import native
from st3.engine.plan.make import make_plan

ACTIVATIONS = [
    nn.ReLU,
    nn.ReLU6,
    nn.GELU,
    nn.SiLU,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Sigmoid,
    nn.Tanh,
    nn.LeakyReLU,
    nn.ELU,
    nn.Identity,
]
KINDS = [
    "conv",
    "conv",
    "conv",
    "depthwise",
    "norm",
    "act",
    "pool",
    "add",
    "multiply",
    "cat",
    "scale",
    "gate",
]
KINDS += ["other norm", "shuffle", "slice", "spatial"]


class RandomNet(nn.Module):
    """A stem and a chain of random pieces; additions and concatenations use an earlier value of the same shape."""

    def __init__(self, pieces: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.pieces = pieces
        self.layers = nn.ModuleList()
        channels = 4
        for kind, a, b in pieces:
            layer, channels = self._layer(kind, a, b, channels)
            self.layers.append(layer)
        self.head = nn.Linear(channels, 3)

    def _layer(self, kind: str, a: int, b: int, channels: int) -> tuple[nn.Module, int]:
        if kind == "conv":
            size, outputs = (1, 2, 3, 3)[a % 4], (4, 6, 8)[b % 3]
            padding = ("same", (size - 1) // 2, "same")[(a + b) % 3]
            groups = 2 if (a + b) % 5 == 0 else 1
            return nn.Conv2d(
                channels, outputs, size, padding=padding, groups=groups, bias=b % 2 == 0
            ), outputs
        if kind == "depthwise":
            return nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=b % 2 == 0), channels
        if kind == "norm":
            return nn.BatchNorm2d(channels), channels
        if kind == "act":
            return ACTIVATIONS[a % len(ACTIVATIONS)](), channels
        if kind == "gate":
            return Excitation(channels, 3, nn.ReLU(), ACTIVATIONS[a % len(ACTIVATIONS)]()), channels
        if kind == "other norm":
            norms = [
                nn.GroupNorm(2, channels),
                ChannelNorm(channels),
                nn.GroupNorm(channels, channels),
                nn.PReLU(channels),
            ]
            return norms[a % 4], channels
        if kind == "spatial":
            return nn.Conv2d(channels, 1, 3, padding=1), channels
        if kind == "pool":
            pools = [
                nn.MaxPool2d(3, 1, 1),
                nn.AvgPool2d(3, 1, 1),
                nn.AvgPool2d(3, 1, 1, count_include_pad=False),
                nn.Upsample((9, 7), mode="bilinear", align_corners=b % 2 == 0),
            ]
            return pools[a % 4], channels
        return nn.Identity(), 2 * channels if kind == "cat" and channels <= 8 else channels

    def forward(self, x: Tensor) -> Any:
        values = [self.stem(x)]
        for (kind, a, b), layer in zip(self.pieces, self.layers, strict=True):
            x = values[-1]
            like = [value for value in values if value.shape == x.shape]
            other = like[b % len(like)]
            if kind == "add":
                x = x + other
            elif kind == "multiply":
                x = x * other
            elif kind == "spatial":
                x = x * layer(other)
            elif kind == "shuffle":
                images, channels, high, wide = x.shape
                x = x.view(images, 2, channels // 2, high, wide).transpose(1, 2).reshape(x.shape)
            elif kind == "slice":  # halves exchanged
                half = x.shape[1] // 2
                x = torch.cat([x[:, half:], other[:, :half]], 1)
            elif kind == "cat" and x.shape[1] <= 8:
                x = torch.cat([other, x], 1)
            elif kind == "scale":
                x = x * (0.5 + a / 8)
            else:
                x = layer(x)
            values.append(x)
        return self.head(F.adaptive_avg_pool2d(values[-1], 1).flatten(1)), values[len(values) // 2]


def zero_at_random(model: nn.Module, sparsity: float, dead: float) -> None:
    """Zero single weights and whole filters."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(torch.rand_like(parameter) >= sparsity)
                parameter.mul_((torch.rand(len(parameter)) >= dead).view(-1, *[1] * (parameter.dim() - 1)))
            elif torch.rand(()) < 0.3:
                parameter.mul_(torch.rand_like(parameter) >= 0.5)


pieces = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.integers(0, 7)), max_size=9)


def check(chosen: list[tuple[str, int, int]], sparsity: float, dead: float, seed: int) -> None:
    torch.manual_seed(seed)
    model = randomise(RandomNet(chosen), seed)
    zero_at_random(model, sparsity, dead)
    x = torch.randn(2, 2, 6, 5)
    fast = st3.engine.compile(model, x, tune=False)
    with torch.no_grad():
        assert_close(fast(x), model(x), 1e-4)
    if native.is_built():
        program = fast.program
        for isa in native.usable_instruction_sets():
            assert verify(make_plan(program, isa=isa)) == ""


settings_of = {
    "chosen": pieces,
    "sparsity": st.sampled_from([0.0, 0.7, 0.95]),
    "dead": st.sampled_from([0.0, 0.3, 0.8]),
    "seed": st.integers(0, 99),
}


@settings(max_examples=5)
@given(**settings_of)
def test_a_random_network_computes_the_same(chosen, sparsity, dead, seed):
    check(chosen, sparsity, dead, seed)


@pytest.mark.slow
@settings(max_examples=300)
@given(**settings_of)
def test_many_random_networks_compute_the_same(chosen, sparsity, dead, seed):
    check(chosen, sparsity, dead, seed)
