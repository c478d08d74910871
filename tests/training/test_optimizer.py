"""The optimizer of a recipe."""

import pytest
import torch
from torch import nn

from st3.training.optimizer import build_optimizer
from st3.training.recipe import OptimizerRecipe


def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


def test_weights_decay_and_norms_and_biases_do_not():
    model = network()
    optimizer = build_optimizer(model, OptimizerRecipe(lr=0.1, weight_decay=1e-4), sparsity=0.9)
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    found = {name: decays[id(p)] for name, p in model.named_parameters()}
    assert {name for name, decay in found.items() if decay} == {"0.weight", "3.weight"}
    assert len(found) == 6


def test_frozen_parameters_are_left_out():
    model = network()
    model[0].requires_grad_(False)
    optimizer = build_optimizer(model, OptimizerRecipe(lr=0.1), 0.0)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 4


@pytest.mark.parametrize(
    ("recipe", "kind", "settings"),
    [
        ({"momentum": 0.875}, torch.optim.SGD, {"momentum": 0.875, "nesterov": False}),
        ({"nesterov": True}, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        ({"name": "adamw", "momentum": 0.8}, torch.optim.AdamW, {"betas": (0.8, 0.999), "eps": 1e-8}),
        (
            {"name": "adamw", "beta2": 0.95, "epsilon": 0.1},
            torch.optim.AdamW,
            {"betas": (0.9, 0.95), "eps": 0.1},
        ),
    ],
)
def test_the_optimizer_has_the_settings_of_the_recipe(recipe, kind, settings):
    optimizer = build_optimizer(network(), OptimizerRecipe(lr=0.3, **recipe), 0.5)
    assert isinstance(optimizer, kind)
    assert {key: optimizer.defaults[key] for key in settings} == settings
    assert optimizer.defaults["lr"] == 0.3
