"""Masks that change in the course of training: when the method is asked for new ones, and what follows from them.

before a step   in which masks change by gradient: the dense gradients are set aside; the optimizer gets those of
                active weights or, where the change replaces the step, none
after a step    the method chooses; what was zeroed or has grown loses its momentum, and all weights do where the
                method begins anew
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from .masks import MaskView, Moment
from .method import MaskMethod
from .shards import local
from .store import is_ours

if TYPE_CHECKING:
    from .exchange import Exchange
    from .layers import Layer

__all__ = ["MaskChanges"]


class MaskChanges:
    """Asks a `MaskMethod` for masks; for any other method it does nothing."""

    def __init__(self, exchange: "Exchange") -> None:
        self._exchange = exchange
        self._answer = (-1, False)  # whether masks change by gradient in the step of that number
        self._gradients: dict[str, Tensor] = {}  # dense, in such a step
        self._withheld: list[tuple[Tensor, Tensor | None]] = []  # parameters and gradients

    @property
    def _method(self) -> MaskMethod | None:
        method = self._exchange.method
        return method if isinstance(method, MaskMethod) and self._exchange.plan.sparsity else None

    @torch.no_grad()
    def begin(self, step: int) -> None:
        """Let the method choose the masks to begin with."""
        if self._method is not None:
            self._set(self._method.first_masks(self._views({}), self._moment(step)), first=True)

    def are_by_gradient(self, step: int) -> bool:
        """Tell whether the masks change in the step of that number, and by the gradients of zeroed weights."""
        method = self._method
        if method is None or not method.grows:
            return False
        if self._answer[0] != step:
            self._answer = (step, method.is_due(self._moment(step)))
        return self._answer[1]

    @torch.no_grad()
    def before_step(self, optimizer: Optimizer, step: int) -> None:
        """Set the dense gradients aside, if masks will change by them in the step of that number."""
        self._withheld = []  # of a step that an exception ended: its gradients are not this one's
        if not self.are_by_gradient(step):
            return
        assert self._method is not None
        for layer in self._exchange.of(optimizer):
            grad = layer.parameter.grad
            if grad is not None:
                self._gradients[layer.name] = local(grad).clone()
                local(grad).masked_fill_(~local(self._exchange.store.get(layer)), 0.0)
        if self._method.replaces_step:
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                self._withheld.append((parameter, parameter.grad))
                parameter.grad = None

    def give_back(self) -> None:
        """Give back the gradients that the optimizer was not to see."""
        for parameter, grad in self._withheld:
            parameter.grad = grad
        self._withheld = []

    @torch.no_grad()
    def after_step(self) -> None:
        """Let the method choose new masks, if it is time and every layer's gradient is known that it needs."""
        gradients, self._gradients = self._gradients, {}
        method = self._method
        if method is None:
            return
        moment = self._moment(self._exchange.step)
        if not method.is_due(moment):
            return
        views = self._views(gradients)
        if not method.grows or all(view.gradient is not None for view in views):
            self._set(method.next_masks(views, moment))
            if method.restarts(moment):
                for optimizer in self._exchange.optimizers:
                    _restart(optimizer)

    def _moment(self, step: int) -> Moment:
        return self._exchange.plan.moment(self._exchange.layers, step)

    def _views(self, gradients: Mapping[str, Tensor]) -> list[MaskView]:
        views = []
        for layer in self._exchange.layers:
            mask = local(self._exchange.store.get(layer))
            views.append(MaskView(layer, local(layer.parameter.detach()), mask, gradients.get(layer.name)))
        return views

    def _set(self, masks: Sequence[Tensor], *, first: bool = False) -> None:
        exchange = self._exchange
        for layer, mask in zip(exchange.layers, masks, strict=True):
            if not first and not exchange.may_join(layer) and not exchange.plan.ramp(0):
                continue  # a layer stays dense until its first gradient: its mask could not be saved before
            held = local(exchange.store.get(layer))
            _clear_momentum(exchange.store.owner(layer), layer, held & mask)
            held.copy_(mask)


def _clear_momentum(optimizer: Optimizer, layer: "Layer", stayed: Tensor) -> None:
    """Set what the optimizer remembers of weights that have not `stayed` active to 0."""
    for key, value in optimizer.state.get(layer.parameter, {}).items():
        if not is_ours(key) and isinstance(value, Tensor) and value.shape == layer.parameter.shape:
            local(value).masked_fill_(~stayed, 0.0)


def _restart(optimizer: Optimizer) -> None:
    """Set everything that the optimizer remembers of its weights to 0, as it was before the first step."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if is_ours(key) or not isinstance(value, Tensor):
                continue
            if value.shape == parameter.shape or key == "step":  # Adam's count, which corrects for its zeros
                local(value).zero_()
