"""Raw weights in half precision: what rounding costs, what is said about it, and what helps."""

import contextlib
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import st3

STEPS = 1300
TARGET = 0.01  # mean squared error; outputs have a mean square of 2.3


def final_error(dtype: torch.dtype, *, autocast: bool = False, make_optimizer: Any = None) -> float:
    """Return the error of a sparse layer that learns a sparser one in small steps."""
    torch.manual_seed(0)
    teacher = nn.Linear(64, 16, bias=False)
    with torch.no_grad():
        teacher.weight.mul_(torch.rand(16, 64) < 0.1).mul_(8.0)
    x = torch.randn(256, 64)
    y = teacher(x).detach()
    torch.manual_seed(1)
    model = nn.Linear(64, 16, bias=False).to(dtype)
    optimizer = (make_optimizer or torch.optim.SGD)(model.parameters(), lr=0.03)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=STEPS)
    for _ in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
            out = model(x.to(dtype))
        (out.float() - y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert int((sparsifier.finalize().weight == 0).sum()) == 819  # 0.8 of 1,024
    with torch.no_grad():
        return float((model(x.to(dtype)).float() - y).square().mean())


class StochasticSGD(torch.optim.SGD):
    """SGD that computes in float32 and rounds up or down at random, without bias."""

    bf16_stochastic_round = True

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                exact = p.float() - group["lr"] * p.grad.float()
                noise = torch.randint(0, 1 << 16, p.shape, dtype=torch.int32)
                p.copy_(((exact.view(torch.int32) + noise) & -(1 << 16)).view(torch.float32))


def test_small_updates_are_lost_in_bfloat16_and_a_layer_does_not_learn_its_task():
    assert final_error(torch.bfloat16) > 10 * TARGET


def test_parameters_in_float32_under_autocast_learn_it():
    assert final_error(torch.float32, autocast=True) < TARGET


def test_bfloat16_parameters_of_an_optimizer_that_rounds_stochastically_learn_it():
    assert final_error(torch.bfloat16, make_optimizer=StochasticSGD) < TARGET


@pytest.mark.parametrize(("dtype", "part"), [(torch.bfloat16, 512), (torch.float16, 4096)], ids=str)
def test_half_precision_raw_weights_are_warned_about_with_the_remedy(dtype, part):
    model = nn.Linear(8, 8).to(dtype)
    with pytest.warns(st3.errors.PrecisionWarning) as caught:
        st3.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), sparsity=0.5, total_steps=5)
    assert [str(warning.message) for warning in caught] == [
        f"the raw weights of 'weight' are {dtype}, which rounds away an update smaller than 1/{part} of a weight, "
        f"so that training may stall: keep parameters in float32 and compute under torch.autocast (with fully_shard: "
        f"MixedPrecisionPolicy), or use an optimizer that rounds stochastically"
    ]


@pytest.mark.parametrize(
    ("dtype", "optimizer", "method"),
    [
        (torch.float32, torch.optim.SGD, "st3"),
        (torch.bfloat16, StochasticSGD, "st3"),
        (torch.bfloat16, torch.optim.SGD, "gmp"),  # keeps no raw weights: as coarse as dense training
    ],
)
def test_nothing_is_said_where_st3_makes_nothing_coarser(dtype, optimizer, method):
    model = nn.Linear(8, 8).to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        st3.sparsify(model, optimizer(model.parameters(), lr=0.1), sparsity=0.5, total_steps=5, method=method)
