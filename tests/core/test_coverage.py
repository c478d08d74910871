"""A warning before training where most of the model would stay dense."""

import re
import warnings

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, ViTConfig, ViTModel

import st3
from st3.core.layers.coverage import describe_gaps


class Tagger(nn.Module):
    """A recurrent model whose only linear layer is its head, with 640 weights."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 48)
        self.lstm = nn.LSTM(48, 64, num_layers=4, bidirectional=True)
        self.head = nn.Linear(128, 5)


LEFT_OUT = 2 * 4 * 64 * (48 + 64) + 3 * 2 * 4 * 64 * (128 + 64)


def sparsify(model, **choice):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return st3.sparsify(model, optimizer, sparsity=0.9, total_steps=10, **choice)


def sparsify_without_a_word(model, **choice):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return sparsify(model, **choice)


def test_sparsity_of_almost_nothing_is_warned_of_with_share_names_and_remedy():
    with pytest.warns(st3.errors.CoverageWarning) as caught:
        sparsify(Tagger())
    (warning,) = caught
    why = "LSTM is not covered by default (include its name or type)"
    names = [f"lstm.weight_ih_{layer} ({why})" for layer in ("l1", "l1_reverse", "l2")]
    assert str(warning.message) == (
        f"only 640 of {640 + LEFT_OUT:,} weights (0.2 %) are covered: the sparsity is asked of these alone, and the "
        f"others stay dense: {'; '.join(names)}; and 13 more. Cover them with include=[st3.USUAL, ...], or name them "
        "in exclude if they are to stay dense; st3.layers(model) shows all of them"
    )
    assert warning.filename == __file__


def test_the_warning_as_an_error_leaves_the_model_alone():
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(st3.errors.CoverageWarning):
            st3.sparsify(model, optimizer, sparsity=0.9, total_steps=10, ramp="constant")
    assert not (model.head.weight == 0).any()
    assert not optimizer.state


@pytest.mark.parametrize(
    "choice",
    [
        {"include": [st3.USUAL, "lstm"]},
        {"include": [st3.USUAL, nn.LSTM]},
        {"include": "head"},  # the user restricts
        {"exclude": "lstm"},  # the user leaves out
    ],
    ids=str,
)
def test_what_the_user_has_chosen_is_not_warned_of(choice):
    sparsify_without_a_word(Tagger(), **choice)


def test_frozen_weights_do_not_count():
    model = Tagger()
    model.lstm.requires_grad_(False)
    sparsify_without_a_word(model)


@pytest.mark.parametrize(("hidden", "is_said"), [(100, False), (99, True)])
def test_the_border_is_half_of_the_weights(hidden, is_said):
    table = nn.ParameterDict({"table": nn.Parameter(torch.zeros(10, 10))})
    model = nn.ModuleDict({"own": table, "fc": nn.Linear(1, hidden)})
    assert (describe_gaps(st3.layers(model)) is not None) == is_said


def test_experts_that_cannot_be_told_apart_are_warned_of():
    class ParallelExperts(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(8, 16, 16))

    model = nn.ModuleDict({"experts": ParallelExperts(), "fc": nn.Linear(16, 16)})
    said = re.escape("only 256 of 2,304 weights (11.1 %) are covered")
    with pytest.warns(st3.errors.CoverageWarning, match=said):
        sparsify(model).detach()
    sparsify_without_a_word(model, include=[st3.USUAL, "experts"])


# ---------------------------------------------------------------- ordinary networks hear nothing

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
ORDINARY = {
    "a CNN": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2)),
    "ViT": lambda: ViTModel(ViTConfig(image_size=32, patch_size=8, **TINY)),
    "GPT-2, mostly embedding": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=5000, n_positions=64, n_embd=16, n_layer=1, n_head=2)
    ),
    "BERT, mostly embedding": lambda: BertModel(BertConfig(vocab_size=5000, **TINY)),
    "a transformer": lambda: nn.Transformer(16, 2, 1, 1, 32, batch_first=True),
    "adapters on a frozen LSTM": lambda: nn.ModuleList(
        [nn.LSTM(32, 32).requires_grad_(False), nn.Linear(32, 2), nn.Linear(2, 32)]
    ),
}


@pytest.mark.parametrize("make", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_networks_are_not_warned_of(make):
    assert describe_gaps(st3.layers(make())) is None
