"""The optimizers that are given: unwrapped, checked, and which of the layers each of them updates.

Whatever else would put weights of its own into the model, and so fill its zeros, is refused here as well.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from .errors import name_some
from .layers.layer import Layers
from .layers.places import unwrap

__all__ = ["check_optimizers", "find_owners", "refuse_averaging"]

# Where wrappers that pass every step on hold the optimizer: Accelerate, Lightning and Fabric; Opacus.
_WRAPPED = ("optimizer", "original_optimizer")
# Where optimizers that do more than that hold the one inside; it is named in the refusal.
_INNER = ("base_optimizer", "_base_optimizer", "optimizer", "base")


def check_optimizers(given: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """Return the optimizers, unwrapped, after checking that the sparsifier can follow their steps."""
    many = list(given) if isinstance(given, Sequence) else [given]
    result = [_check(optimizer) for optimizer in many]
    if not result:
        raise ValueError("no optimizer was given")
    return result


def _check(optimizer: Any) -> Optimizer:
    inner = next(
        (held for key in _WRAPPED if isinstance(held := getattr(optimizer, key, None), Optimizer)), None
    )
    is_wrapper = hasattr(optimizer, "zero_grad")  # a learning-rate scheduler has an optimizer, too
    if inner is not None and is_wrapper:
        checked = _check(inner)
        _refuse_own_weights(optimizer)
        return checked
    _refuse_own_weights(optimizer)
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
    return optimizer


def _refuse_own_weights(optimizer: Any) -> None:
    """Raise for an optimizer that puts weights of its own into the model, or steps through another one.

    They are known by their names and attributes: none of their packages need be installed.
    """
    name = type(optimizer).__name__
    key = next((key for key in _INNER if isinstance(getattr(optimizer, key, None), Optimizer)), None)
    inside = f"the optimizer inside ({type(getattr(optimizer, key)).__name__}, its .{key})" if key else ""
    if hasattr(optimizer, "first_step") and hasattr(optimizer, "second_step"):
        raise ValueError(
            f"{name} steps through another optimizer, so its own steps cannot be followed: pass "
            f"{inside or 'the base optimizer'} to sparsify and go on training with {name}"
        )
    groups = getattr(optimizer, "param_groups", ())
    if "schedulefree" in name.lower() or (
        hasattr(optimizer, "train") and hasattr(optimizer, "eval") and any("train_mode" in g for g in groups)
    ):
        raise ValueError(
            f"{name} averages weights and puts the average into the model at eval(), which fills the zeros: train with "
            f"{inside or 'an ordinary optimizer (AdamW, SGD)'} and a learning-rate schedule instead"
        )
    if "lookahead" in name.lower():
        raise ValueError(
            f"{name} puts slow weights of its own into the model every few steps, which fills the zeros: train with "
            f"{inside or 'an ordinary optimizer (AdamW, SGD)'} alone"
        )


def refuse_averaging(model: nn.Module) -> None:
    """Raise for a LightningModule whose trainer will put dense averaged weights into it."""
    trainer = getattr(unwrap(model), "_trainer", None)  # None until the module belongs to one
    callbacks = getattr(trainer, "callbacks", ())
    can_be_sparse = any(getattr(callback, "sparsifies_averages", False) for callback in callbacks)
    for callback in callbacks:
        names = {cls.__name__ for cls in type(callback).__mro__}
        if "StochasticWeightAveraging" in names or ("WeightAveraging" in names and not can_be_sparse):
            raise ValueError(
                f"the trainer's callback {type(callback).__name__} puts averaged weights into the model when training "
                f"ends, which fills the zeros: use Lightning's WeightAveraging beside "
                f"st3.integrations.lightning.SparseTraining, which makes the average sparse"
            )


def find_owners(layers: Layers, optimizers: list[Optimizer]) -> dict[str, Optimizer]:
    """Return which optimizer updates each layer."""
    by_parameter = {id(p): o for o in optimizers for group in o.param_groups for p in group["params"]}
    strangers = [layer.name for layer in layers if id(layer.parameter) not in by_parameter]
    if strangers:
        raise ValueError(
            f"the optimizer does not own {name_some(strangers)}: build it from model.parameters() after the model is "
            f"complete and wrapped, or exclude these layers"
        )
    return {layer.name: by_parameter[id(layer.parameter)] for layer in layers}
