"""The GPT: it never looks ahead, and its sizes are arguments."""

import pytest
import torch

from st3.models import MODELS


@torch.no_grad()
def test_a_character_changes_the_scores_from_its_place_on_and_none_before():
    torch.manual_seed(0)
    model = MODELS["gpt"](vocabulary=11, context=12, layers=2, heads=2, width=8)
    text = torch.randint(11, (1, 12))
    other = text.clone()
    other[0, 7] = (text[0, 7] + 1) % 11
    before, after = model(text), model(other)
    assert torch.equal(before[0, :7], after[0, :7])
    assert (before[0, 7:] != after[0, 7:]).any(1).all()


@torch.no_grad()
def test_a_shorter_text_is_scored_as_the_beginning_of_a_longer_one():
    torch.manual_seed(0)
    model = MODELS["gpt"](vocabulary=11, context=12, layers=1, heads=2, width=8)
    text = torch.randint(11, (2, 12))
    torch.testing.assert_close(model(text[:, :5]), model(text)[:, :5])


def test_its_sizes_are_arguments():
    model = MODELS["gpt"](vocabulary=11, context=12, layers=2, heads=2, width=8)
    # embeddings, two blocks (norms, attention, perceptron), the last norm, the classifier
    block = 4 * 8 + 8 * 24 + 24 + 8 * 8 + 8 + 8 * 32 + 32 + 32 * 8 + 8
    assert sum(p.numel() for p in model.parameters()) == 11 * 8 + 12 * 8 + 2 * block + 16 + 8 * 11


@pytest.mark.parametrize("change", [{"dtype": torch.float64}, {"device": "meta"}])
def test_a_decoders_cache_is_where_the_model_is_and_as_precise(change):
    model = MODELS["gpt"](vocabulary=11, context=12, layers=1, heads=2, width=8).to(**change)
    like = model.head.weight
    assert {(each.dtype, each.device) for each in model.decoder().buffers()} == {(like.dtype, like.device)}


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="width 10 must be a multiple of the 4 heads"):
        MODELS["gpt"](width=10)
    with pytest.raises(ValueError, match="13 characters do not fit in a context of 12"):
        MODELS["gpt"](vocabulary=11, context=12)(torch.zeros(1, 13, dtype=torch.int64))
