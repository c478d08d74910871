"""The optimizer of a recipe. Weight decay acts on weights only, never on norms and biases."""

import torch
from torch import nn
from torch.optim import Optimizer

from .recipe import OptimizerRecipe

__all__ = ["build_optimizer"]


def build_optimizer(model: nn.Module, recipe: OptimizerRecipe, sparsity: float) -> Optimizer:
    """Return an optimizer of the model's trainable parameters, with the weight decay for a target sparsity.

    >>> recipe = OptimizerRecipe(lr=0.1, weight_decay=1e-4, weight_decay_from=((0.965, 1e-5),))
    >>> optimizer = build_optimizer(nn.Linear(3, 2), recipe, sparsity=0.98)
    >>> [group["weight_decay"] for group in optimizer.param_groups]
    [1e-05, 0.0]
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weights = [parameter for parameter in trainable if parameter.dim() >= 2]
    others = [parameter for parameter in trainable if parameter.dim() < 2]
    groups = [
        {"params": weights, "weight_decay": recipe.decay_at(sparsity)},
        {"params": others, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if recipe.name == "adamw":
        betas = (recipe.momentum, recipe.beta2)
        return torch.optim.AdamW(groups, lr=recipe.lr, betas=betas, eps=recipe.epsilon)
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov)
