"""What the caller has set in torch does not change what is compiled and computed."""

import pytest
import torch
from tests.engine.outputs import assert_close
from torch import nn

import st3


class PartlyInTorch(nn.Sequential):
    def forward(self, x):
        return self[1](torch.cumsum(self[0](x), 1) @ torch.ones(4, 4))


def partly_in_torch():
    return PartlyInTorch(nn.Linear(3, 4), nn.Linear(4, 2)).eval()


def test_a_shape_first_met_under_autocast_is_compiled_as_outside_it():
    model = partly_in_torch()
    fast = st3.engine.compile(model, torch.randn(1, 3), tune=False)
    steps = [type(step).__name__ for step in fast.program]
    x = torch.randn(2, 3)
    with torch.autocast("cpu"):
        within = fast(x)
        compiled_within = st3.engine.compile(model, x, tune=False)
    assert [type(step).__name__ for step in fast.program] == steps
    assert [type(step).__name__ for step in compiled_within.program] == steps
    assert within.dtype is torch.float32
    assert torch.equal(within, fast(x))  # also what torch computes is float32
    assert_close(within, model(x).detach())


@pytest.mark.parametrize("is_compiled_inside", [False, True])
def test_a_batch_in_parts_runs_in_inference_mode(is_compiled_inside):
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3)).eval()
    x = torch.randn(4, 3, 150, 150)
    with torch.inference_mode(is_compiled_inside):
        fast = st3.engine.compile(model, x, threads=2, tune=False)
    with torch.inference_mode():
        within = fast(x.clone())
    assert torch.equal(within, fast(x))
    assert_close(within, model(x).detach())


def test_a_model_made_in_inference_mode_can_be_compiled():
    with torch.inference_mode():
        model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval(), torch.randn(1, 3, 8, 8)
        want = model(x)
    fast = st3.engine.compile(model, x, tune=False)
    assert_close(fast(x), want)
