"""The backward equation: gradients of sparse weights become those of raw weights.

A tensor hook on the parameter does it, so that clipping, accumulation and data-parallel averaging see the gradient that
will be applied. `fully_shard` never calls such hooks: there the map is applied by an explicit call before clipping or,
failing that, right before the optimizer's step.

What a method adds to the gradient by itself comes then as well, once per step: the optimizer sees it, as it sees weight
decay, and the user gets back what was there before.
"""

from collections.abc import Callable, Sequence

from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from .layers import Layer
from .shards import is_sharded, local

__all__ = ["Gradients"]


class Gradients:
    """Applies `raw_gradient(layer, grad)` to every gradient of `layers` exactly once per step."""

    def __init__(self, layers: Sequence[Layer], raw_gradient: Callable[[Layer, Tensor], Tensor]) -> None:
        self._layers = layers
        self._raw_gradient = raw_gradient
        self._handles: list[RemovableHandle] = []
        self._is_active = False
        self._done: set[str] = set()  # sharded layers whose gradients are mapped already
        self._set_aside: list[
            tuple[Tensor, Tensor, Tensor]
        ] = []  # parameter, its gradient, what it has instead

    def hang(self, *, active: bool) -> None:
        """Hang the tensor hooks anew; not `active` means that gradients stay as they are."""
        self.unhook()
        self._is_active = active
        for layer in self._layers if active else ():

            def hook(grad: Tensor, layer: Layer = layer) -> Tensor:
                return self._raw_gradient(layer, grad)

            def arrived(parameter: Tensor, layer: Layer = layer) -> None:
                self._done.discard(layer.name)

            if is_sharded(layer.parameter):  # fully_shard calls this hook once the gradient is reduced
                self._handles.append(layer.parameter.register_post_accumulate_grad_hook(arrived))
            else:
                self._handles.append(layer.parameter.register_hook(hook))

    def unhook(self) -> None:
        """Remove the tensor hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def map_sharded(self, layers: Sequence[Layer] | None = None) -> None:
        """Map the gradients of `layers` (default: all) that no hook has seen, unless that has been done."""
        if not self._is_active:
            return
        for layer in self._layers if layers is None else layers:
            grad = layer.parameter.grad
            if grad is not None and is_sharded(layer.parameter) and layer.name not in self._done:
                part = local(grad)
                part.copy_(self._raw_gradient(layer, part))
                self._done.add(layer.name)

    def expect_new(self, layers: Sequence[Layer]) -> None:
        """Note that the step of `layers` is over: their next gradients are new ones."""
        self._done -= {layer.name for layer in layers}

    def add_own(
        self, optimizer: Optimizer, layers: Sequence[Layer], own: Callable[[Layer], Tensor | None]
    ) -> None:
        """Add the method's own part to the gradients that the optimizer is about to see."""
        self.give_back()  # after a step that an exception ended
        loss_scale = getattr(optimizer, "grad_scale", None)  # of gradients that a fused step will unscale
        for layer in layers:
            grad, part = layer.parameter.grad, own(layer)
            if grad is None or part is None:
                continue
            total = grad.clone()
            local(total).add_(part if loss_scale is None else part * loss_scale)
            self._set_aside.append((layer.parameter, grad, total))
            layer.parameter.grad = total

    def give_back(self) -> None:
        """Undo `add_own`."""
        for parameter, grad, total in self._set_aside:
            if parameter.grad is total:
                parameter.grad = grad
        self._set_aside = []
