"""Masks: zeroed weights are exactly 0 and get no gradient, so that only the mask is kept. Here it never changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar, final

import torch
from torch import Tensor

from ..layers.layer import Layer
from ..method import Method
from ..state.store import MASK
from .family import Family, all_agree

__all__ = ["FixedMask", "FixedMasks", "MaskFamily"]

M = TypeVar("M", bound=Method)


class MaskFamily(Family[M]):
    """Keeps one mask per layer in the optimizer's state."""

    @property
    def follows_ramp(self) -> bool:
        return False

    def mask(self, layer: Layer) -> Tensor:
        """Return the local part of the layer's mask."""
        return self.store.get_local(layer, self.key)

    def raw_gradient(self, layer: Layer, grad: Tensor) -> Tensor:
        return torch.where(self.mask(layer), grad, 0.0)  # not a product: inf * 0 would be NaN

    @torch.no_grad()
    def write(self, layers: Sequence[Layer]) -> None:
        for layer in layers:
            layer.weight.masked_fill_(~self.mask(layer), 0.0)
            self.store.join(layer, self.key)

    @torch.no_grad()
    def holds(self, layer: Layer) -> bool:
        return all_agree(layer, not bool(layer.weight[~self.mask(layer)].any()))

    def masks(self) -> dict[str, Tensor]:
        return {layer.name: self.store.get(layer, self.key) for layer in self.layers}


@final
class FixedMasks(MaskFamily[Method]):
    """Active weights train as usual, zeroed ones stay exactly 0."""

    key: ClassVar[str] = MASK
    keeps: ClassVar[str] = f"the fixed mask of every sparsified parameter `p`, `optimizer.state[p]['{MASK}']`"
    is_fixed: ClassVar[bool] = True

    def initial(self, layer: Layer) -> Tensor:
        return layer.parameter.detach() != 0


@final
@dataclass(frozen=True)
class FixedMask(Method):
    """The mask stays as it is; active weights train as usual, zeroed ones stay exactly 0."""

    family = FixedMasks
