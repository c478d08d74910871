"""Learned thresholds around a step: for any method but a `LearnedThreshold` nothing happens here.

before the step   their gradients, from p.grad as the optimizer will see it: averaged over processes, unscaled, clipped
after it          one step of the same kind of optimizer, with the settings of the layer's group
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from .allocations import Cut
from .learned import LearnedThreshold
from .shards import all_reduce, local
from .store import STEP_KEY
from .variables import advance

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["RULES", "LearnedThresholds", "rule_of"]

RULES = (SGD, Adam, AdamW)
_NOT_SETTINGS = ("params", "param_names", STEP_KEY)
# How torch computes, not what: these numbers are too few to care, and their device may be any.
_PLAIN = {"foreach": False, "fused": None, "capturable": False, "differentiable": False}


def rule_of(optimizer: Optimizer) -> type[Optimizer] | None:
    """Return the kind of optimizer whose rule moves the learned numbers; None if it is not one of those known."""
    return next((kind for kind in type(optimizer).__mro__ if kind in RULES), None)


class LearnedThresholds:
    """The learned numbers of all layers of an exchange."""

    def __init__(self, exchange: "Exchange") -> None:
        self._exchange = exchange
        self._gradients: dict[str, Tensor] = {}  # in the step under way

    @property
    def _method(self) -> LearnedThreshold | None:
        method = self._exchange.method
        return method if isinstance(method, LearnedThreshold) else None

    def cuts(self) -> list[Cut | None]:
        """Return where the learned thresholds cut each layer."""
        assert self._method is not None
        variables = self._exchange.variables
        return [
            Cut(self._method.threshold(variables.of(layer)["threshold"])) for layer in self._exchange.layers
        ]

    @torch.no_grad()
    def before_step(self, optimizer: Optimizer) -> None:
        """Take the gradients while the parameters still hold the sparse weights."""
        self._gradients = {}
        if self._method is None:
            return
        scale = getattr(optimizer, "grad_scale", None)  # a fused optimizer unscales by itself, later
        for layer in self._exchange.of(optimizer):
            grad = layer.parameter.grad
            if grad is None:
                continue
            variable = self._exchange.variables.of(layer)["threshold"]
            sparse = local(layer.parameter.detach())
            own = self._method.variable_gradient(local(grad), sparse, variable)
            own = all_reduce(own, layer.shards.counts)
            self._gradients[layer.name] = own if scale is None else own / scale

    @torch.no_grad()
    def after_step(self, optimizer: Optimizer) -> None:
        """Move the learned numbers by the optimizer's own rule."""
        gradients, self._gradients = self._gradients, {}
        kind = rule_of(optimizer)
        if self._method is None or kind is None:
            return
        layers = {id(x.parameter): x for x in self._exchange.of(optimizer) if x.name in gradients}
        for group in optimizer.param_groups:
            mine = [layers[id(p)] for p in group["params"] if id(p) in layers]
            if not mine:
                continue
            settings = {key: value for key, value in group.items() if key not in _NOT_SETTINGS}
            settings |= {key: value for key, value in _PLAIN.items() if key in group}
            if self._method.weight_decay is not None:
                settings["weight_decay"] = self._method.weight_decay
            values = [self._exchange.variables.of(layer) for layer in mine]
            advance(kind, settings, "threshold", values, [gradients[layer.name] for layer in mine])
            for layer, each in zip(mine, values, strict=True):
                self._exchange.variables.put(layer, each, join=False)  # until the step is over
