"""The optimizers that are given: unwrapped, checked, and which of the layers each of them updates."""

from collections.abc import Sequence

import torch
from torch.optim import Optimizer

from .errors import name_some
from .layers.layer import Layers

__all__ = ["hookable", "owners_of"]


def hookable(given: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """Return the optimizers, unwrapped, after checking that their steps can be hooked."""
    many = list(given) if isinstance(given, Sequence) else [given]
    result = []
    for optimizer in many:
        # accelerate's AcceleratedOptimizer and its like (a learning-rate scheduler has an optimizer, too)
        while hasattr(optimizer, "zero_grad") and isinstance(
            getattr(optimizer, "optimizer", None), Optimizer
        ):
            optimizer = getattr(optimizer, "optimizer")  # noqa: B009 - not an attribute of every Optimizer
        name = type(optimizer).__name__
        if not isinstance(optimizer, Optimizer) or not hasattr(optimizer, "_optimizer_step_pre_hooks"):
            raise TypeError(
                f"{name} is not a torch optimizer with step hooks: pass a torch.optim.Optimizer (one that calls its "
                f"base class's __init__)"
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError(
                "LBFGS evaluates the model several times per step, which no raw weight survives: use SGD or Adam"
            )
        if any(group.get("differentiable") for group in optimizer.param_groups):
            raise ValueError(
                f"{name}(differentiable=True) cannot be combined with in-place sparse weights: turn it off"
            )
        result.append(optimizer)
    if not result:
        raise ValueError("no optimizer was given")
    return result


def owners_of(layers: Layers, optimizers: list[Optimizer]) -> dict[str, Optimizer]:
    """Return which optimizer updates each layer."""
    by_parameter = {id(p): o for o in optimizers for group in o.param_groups for p in group["params"]}
    strangers = [layer.name for layer in layers if id(layer.parameter) not in by_parameter]
    if strangers:
        raise ValueError(
            f"the optimizer does not own {name_some(strangers)}: build it from model.parameters() after the model is "
            f"complete and wrapped, or exclude these layers"
        )
    return {layer.name: by_parameter[id(layer.parameter)] for layer in layers}
