"""A new input shape: the answers are the model's, and work that does not depend on the shape is not done again."""

import time

import numpy as np
import pytest
import torch
from tests.engine.outputs import assert_close
from torch import Tensor, nn
from torch.nn import functional as F

from st3.engine import compile, compiled
from st3.engine.frontend import capture, translate
from st3.engine.plan import convolution, make
from st3.engine.program import Linear


class ByLength(nn.Module):
    """A causal transformer block that adds positions and pads short inputs, all by the length of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(40, 32), nn.Embedding(64, 32)
        self.qkv, self.up, self.down = nn.Linear(32, 96), nn.Linear(32, 96), nn.Linear(96, 32)
        self.short, self.head = nn.Linear(32, 32), nn.Linear(32, 40)

    def forward(self, ids: Tensor) -> Tensor:
        batch, length = ids.shape
        x = self.tokens(ids) + self.positions(torch.arange(length))
        q, k, v = self.qkv(x).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        mask = torch.ones(length, length, dtype=torch.bool).tril() if length % 2 else None
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + mixed.transpose(1, 2).reshape(batch, length, 32)
        if length < 6:
            x = self.short(x) / length
        x = x + self.down(F.gelu(self.up(x)))
        return self.head(x[:, -16:] if length > 16 else x)


@pytest.mark.parametrize("tune", [False, True])
def test_a_model_that_branches_on_the_length_is_right_for_every_length(tune, monkeypatch):
    monkeypatch.setattr(compiled, "_race", lambda *calls: [1.0, 2.0])
    model = zero_at_random(ByLength())
    fast = compile(model, torch.randint(40, (1, 12)), tune=tune)
    for shape in [(1, 1), (1, 2), (1, 5), (1, 6), (2, 6), (1, 7), (3, 16), (1, 17), (1, 40), (1, 12), (1, 5)]:
        ids = torch.randint(40, shape)
        assert_close(fast(ids), model(ids))


@pytest.mark.parametrize("tune", [False, True])
def test_the_non_zero_weights_of_a_dense_layer_are_never_listed(tune, monkeypatch):
    monkeypatch.setenv("ST3_TUNING", "off")
    listed = count_calls(monkeypatch, convolution, "nonzeros")
    model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 8)).eval()
    fast = compile(model, torch.randn(20, 16), tune=tune)
    fast(torch.randn(50, 16))
    assert not listed
    with torch.no_grad():
        model[0].weight[:, 2:] = 0
    compile(model, torch.randn(20, 16), tune=False)
    assert [len(weight) for weight, *_ in listed] == [256]


def test_translation_reads_weights_where_they_are():
    model = nn.Sequential(nn.Linear(16, 256)).eval()
    program = translate(capture(model, (torch.randn(20, 16),), {})).program
    (layer,) = (step for step in program if isinstance(step, Linear))
    assert np.shares_memory(layer.weight, model[0].weight.detach().numpy())


def test_a_very_large_layer_is_measured_by_some_of_its_outputs(monkeypatch):
    monkeypatch.setenv("ST3_TUNING", "off")
    monkeypatch.setattr(compiled, "_race", lambda *calls: [1.0, 2.0])
    monkeypatch.setattr(convolution, "SAMPLE_WEIGHTS", 64 * 16)
    made = count_calls(monkeypatch, convolution, "make_structure")
    model = zero_at_random(nn.Sequential(nn.Linear(16, 500)))
    fast, x = compile(model, torch.randn(40, 16)), torch.randn(40, 16)
    outputs = [len(each.weight) for each, *_ in made]
    assert len(outputs) > 2  # all candidates, then the chosen one
    assert set(outputs[:-1]) == {64}
    assert outputs[-1] == 500
    assert_close(fast(x), model(x))


def test_candidates_that_take_long_are_measured_in_one_round(monkeypatch):
    monkeypatch.setenv("ST3_TUNING", "off")
    model, x = nn.Sequential(nn.Linear(16, 256)).eval(), torch.randn(40, 16)
    candidates = count_calls(monkeypatch, make._Timer, "_plan")
    runs = count_calls(monkeypatch, make.native.Session, "time")
    monkeypatch.setattr(make, "ROUNDS_SECONDS", 0.0)
    compile(model, x)
    assert len(runs) == 2 * len(candidates) > 0


def test_a_race_ends_when_the_winner_is_clear():
    runs = []
    compiled._race(lambda: runs.append(time.sleep(0.02)), lambda: time.sleep(0.001))
    assert len(runs) == 3  # the first is not counted


def zero_at_random(model):
    """Return the model in eval mode with four of five weights zero."""
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(torch.rand_like(layer.weight) < 0.2)
    return model.eval()


def count_calls(monkeypatch, home, name):
    """Return a list to which every call of a function adds its arguments."""
    found, original = [], getattr(home, name)
    monkeypatch.setattr(home, name, lambda *args, **kwargs: found.append(args) or original(*args, **kwargs))
    return found
