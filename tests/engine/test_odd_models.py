"""Whatever a model is made of, the compiled one answers the same in the same structure."""

import re
from collections import Counter

import pytest
import torch
from tests.engine.answers import assert_close
from tests.engine.odd_models import ODD, randomise

import st3
from st3.engine.program import InTorch

# What is left to torch: operations with no step of their own, with the views and masks they need.
# A tuple is made again for each of its items.
IN_TORCH = {
    "convolutions": {},
    "pre-activated": {"slice": 1},
    "joined": {},
    "squeeze-excite": {"mul": 1},
    "many answers": {"max": 1, "mul": 1, "select_scatter": 1},
    "arithmetic": {"add": 1, "sub": 1},
    "attention": {"add": 1, "cat": 1, "layer_norm": 2, "scaled_dot_product_attention": 1, "select": 1},
    "masked": {"masked_fill": 1},
    "scores": {},
    "weight-normed": {},
    "recurrent": {"lstm": 3},
    "embedding": {"embedding": 1},
}


@pytest.fixture(params=ODD)
def name(request):
    torch.manual_seed(0)
    return request.param


def test_the_compiled_model_answers_as_the_model_does(name):
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
    left = [step.name for step in fast.program if isinstance(step, InTorch)]
    in_torch = Counter(re.sub(r" \(\d+\)$", "", each).split(".")[-1] for each in left)
    assert in_torch.keys().isdisjoint({"conv2d", "linear"})
    assert in_torch == IN_TORCH.get(name, in_torch)
