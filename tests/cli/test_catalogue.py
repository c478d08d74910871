"""`st3 list`."""

import json

import pytest

from st3.core.budget.allocation import ALLOCATIONS
from st3.core.budget.ramp import RAMPS
from st3.core.method import METHODS
from st3.data import DATASETS
from st3.experiments.protocols import PROTOCOLS
from st3.models import MODELS
from st3.training.recipe import built_in_recipes

KINDS = {
    "methods": ["dense", *METHODS],
    "models": list(MODELS),
    "data": list(DATASETS),
    "recipes": list(built_in_recipes()),
    "protocols": list(PROTOCOLS),
    "allocations": list(ALLOCATIONS),
    "ramps": list(RAMPS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_lists_every_name_with_a_description(st3, kind):
    found = json.loads(st3("list", kind, "--json").stdout)
    assert list(found) == KINDS[kind]
    assert [name for name, line in found.items() if not line or "\n" in line] == []


def test_without_a_kind_it_lists_everything(st3):
    shown = st3("list").stdout
    assert [name for names in KINDS.values() for name in names if f"{name} " not in shown] == []
    assert list(json.loads(st3("list", "--json").stdout)) == list(KINDS)


def test_an_unknown_kind_is_a_usage_error_with_a_suggestion(st3):
    answer = st3("list", "modles")
    assert answer.exit_code == 2
    assert "unknown kind 'modles'; did you mean 'models'? (known: methods, models," in answer.stderr


def test_a_recipe_is_described_by_the_first_sentence_of_its_comment(st3):
    found = json.loads(st3("list", "recipes", "--json").stdout)
    assert found["digits"] == "8x8 digits, in seconds on a laptop."
    assert found["imagenet"] == "ImageNet, ResNet-50, as the paper states it."
