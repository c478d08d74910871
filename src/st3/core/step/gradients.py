"""The backward equation: gradients of sparse weights become those of raw weights, once per step.

A hook on the parameter does it as gradients arrive, so that clipping, accumulation and data-parallel averaging see the
gradient that will be applied. Gradients that no hook has seen (set by hand, as from `torch.func.grad`) are mapped right
before the optimizer's step.

For some steps the optimizer is shown other gradients than the user's; these come back after the step.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..layers.layer import Layer
from ..layers.shards import local

__all__ = ["Gradients"]

RawGradient = Callable[[Layer, Tensor], Tensor]


class Gradients:
    """Applies `raw_gradient(layer, grad)` to every gradient of some layers exactly once."""

    def __init__(self) -> None:
        self.is_mapping = False
        self._raw_gradient: RawGradient | None = None
        self._handles: list[RemovableHandle] = []
        self._mapped: set[str] = set()  # layers whose gradient of the step under way is mapped already
        # Gradients of the last step, and their versions.
        self._used: dict[str, tuple[weakref.ref[Tensor], int]] = {}
        self._sums: dict[str, tuple[Tensor, int, Tensor]] = {}  # sharded: a gradient, its version, and a copy
        # Parameters, their gradients, and what the optimizer sees instead.
        self.shown: list[tuple[nn.Parameter, Tensor | None, Tensor | None]] = []

    def hang(self, layers: Sequence[Layer], raw_gradient: RawGradient | None) -> None:
        """Hang the hooks anew; with None, gradients stay as they are."""
        self.unhook()
        self._raw_gradient = raw_gradient
        self.is_mapping = raw_gradient is not None
        for layer in layers if raw_gradient is not None else ():
            # fully_shard calls no tensor hook, but this one, when the gradient is reduced.
            if layer.is_distributed:
                hook = layer.parameter.register_post_accumulate_grad_hook(self._map_sharded(layer))
            else:
                hook = layer.parameter.register_hook(self._map_arriving(layer))
            self._handles.append(hook)

    def unhook(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _map_arriving(self, layer: Layer) -> Callable[[Tensor], Tensor]:
        def hook(grad: Tensor) -> Tensor:
            assert self._raw_gradient is not None
            self._mapped.add(layer.name)
            return self._raw_gradient(layer, grad)

        return hook

    def _map_sharded(self, layer: Layer) -> Callable[[Tensor], None]:
        @torch.no_grad()
        def hook(parameter: Tensor) -> None:
            assert self._raw_gradient is not None
            grad = parameter.grad
            assert grad is not None
            part = local(grad)
            self._mapped.add(layer.name)
            last, version, before = self._sums.get(layer.name, (None, 0, part))
            # fully_shard adds to the local part, which grad's own version does not count. If nobody has touched the
            # gradient, this is another micro-batch, and what was there before is mapped already.
            if last is grad and grad._version == version:
                part.copy_(before + self._raw_gradient(layer, part - before))
            else:
                part.copy_(self._raw_gradient(layer, part))
            self._sums[layer.name] = (grad, grad._version, part.clone())

        return hook

    @torch.no_grad()
    def map_missing(self, layers: Sequence[Layer]) -> None:
        """Map the gradients of `layers` that no hook has seen."""
        assert self._raw_gradient is not None
        for layer in layers:
            grad = layer.parameter.grad
            if grad is not None and layer.name not in self._mapped and not self._is_used(layer, grad):
                part = local(grad)
                part.copy_(self._raw_gradient(layer, part))
                self._mapped.add(layer.name)

    def expect_new(self, layers: Sequence[Layer]) -> None:
        """Note that the step of `layers` is over: their next gradients are new ones."""
        for layer in layers:
            self._mapped.discard(layer.name)
            self._sums.pop(layer.name, None)
            grad = layer.parameter.grad
            if grad is not None:
                self._used[layer.name] = (weakref.ref(grad), grad._version)

    def _is_used(self, layer: Layer, grad: Tensor) -> bool:
        """Whether the gradient is still that of the last step, mapped then."""
        last, version = self._used.get(layer.name, (None, 0))
        return last is not None and last() is grad and grad._version == version

    def show(self, replaced: Iterable[tuple[nn.Parameter, Tensor | None]]) -> None:
        """Show the optimizer these gradients in place of the user's."""
        for parameter, instead in replaced:
            self.shown.append((parameter, parameter.grad, instead))
            parameter.grad = instead

    def recover(self) -> None:
        """Undo `show` after a step that an exception ended: gradients that were hidden from it belong to no step."""
        self.shown = [shown for shown in self.shown if shown[2] is not None]
        self.give_back()

    def give_back(self) -> None:
        """Undo `show`."""
        for parameter, grad, instead in self.shown:
            if parameter.grad is instead:
                parameter.grad = grad
        self.shown = []
