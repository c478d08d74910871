"""Class scores from whatever a network returns."""

from types import SimpleNamespace

import pytest
import torch

from st3.training.scores import class_scores

SCORES = torch.tensor([[1.0, 2.0]])


@pytest.mark.parametrize(
    "output",
    [SCORES, SimpleNamespace(logits=SCORES, loss=None), type("Output", (tuple,), {"logits": SCORES})()],
)
def test_they_are_the_output_itself_or_its_logits(output):
    assert class_scores(output) is SCORES


def test_an_output_without_logits_is_returned_as_it_is():
    assert class_scores((SCORES, 3)) == (SCORES, 3)
