"""Every kind of step that has kernels has a rule; without a rule it would run in torch."""

import pytest
import torch
from torch import nn

import st3
from st3.engine import native, program
from st3.engine.plan.lower import lower
from st3.engine.plan.planner import Planner

IN_TORCH = {program.Softmax, program.InTorch}


def leaves(kind: type[program.Step]) -> list[type[program.Step]]:
    """Return the kinds of steps that are not the base of others."""
    below = kind.__subclasses__()
    return [leaf for each in below for leaf in leaves(each)] if below else [kind]


def test_every_kind_of_step_except_two_has_a_rule():
    kinds = set(leaves(program.Step))
    assert {kind for kind in kinds if lower.dispatch(kind) is lower.dispatch(program.Step)} == IN_TORCH


@pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")
@pytest.mark.parametrize(("kernel", "is_masked"), [(1, False), (3, True)])
def test_pixels_outside_the_image_become_zero_only_if_a_reader_needs_them(kernel, is_masked):
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, kernel, padding=kernel // 2)).eval()
    fast = st3.engine.compile(model, torch.randn(1, 3, 14, 14), threads=1, tune=False)
    steps = fast.program
    planner = Planner(steps, native.kernels(), threads=1)
    for step in steps:
        lower(step, planner)
    first = next(operation.tune for operation in planner.operations if operation.tune)
    first = getattr(first, "first", first)  # two 1x1 convolutions may be one operation
    assert first.target.field.mask is not None
    assert first.is_masked is is_masked
