"""Compiled models with unusual features return the same output in the same structure."""

import pytest
import torch
from tests.engine.odd_models import ODD, randomise
from tests.engine.outputs import assert_close

import st3
from st3.engine.program import InTorch

# The steps in torch, each with its operators. Consecutive operators are one step, with the views and masks they need; a
# tuple is computed again for each of its items.
IN_TORCH = {
    "convolutions": [],
    "pre-activated": [["slice", "slice"]],
    "joined": [],
    "squeeze-excite": [],
    "attention": [
        ["transpose", "cat", "add"],
        ["select"],
    ],
    "many answers": [
        ["select", "affine", "select_scatter"],
        ["reshape"],
        ["max", "getitem"],
        ["elementwise"],
    ],
    "arithmetic": [["add"]],
    "masked": [
        ["transpose", "to", "abs", "gt", "masked_fill"],
        ["argmax", "_to_copy"],
        ["permute"],
    ],
    "scores": [],
    "weight-normed": [],
    "recurrent": [["lstm", "getitem"]] * 3,
    "embedding": [],
}


@pytest.fixture(params=ODD)
def name(request):
    torch.manual_seed(0)
    return request.param


def test_the_compiled_model_computes_the_same(name):
    make, inputs = ODD[name]
    model = randomise(make())
    fast = st3.engine.compile(model, inputs())
    for _ in range(2):
        fresh = inputs()
        with torch.no_grad():
            expected = model(*(tensor.clone() for tensor in fresh))
        kept = [tensor.clone() for tensor in fresh]
        assert_close(fast(*fresh), expected)
        assert all(torch.equal(one, other) for one, other in zip(fresh, kept, strict=True))
    in_torch = [step.function.operators for step in fast.program if isinstance(step, InTorch)]
    assert all({"conv2d", "linear"}.isdisjoint(operators) for operators in in_torch)
    assert in_torch == IN_TORCH.get(name, in_torch)
