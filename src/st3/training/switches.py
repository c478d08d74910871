"""Count the weights that changed between active and zeroed."""

import torch
from torch import Tensor

from ..core.layers.layer import Layers
from ..core.layers.shards import all_reduce

__all__ = ["Switches"]


class Switches:
    """Remembers which weights were active at the last count; kept in checkpoints, but training does not use it."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self.masks: dict[str, Tensor] = {}

    @torch.no_grad()
    def count(self) -> dict[str, tuple[int, int]]:
        """Return (revived, zeroed) of each layer since the last count; nothing the first time."""
        found = {}
        for layer in self.layers:
            active = layer.weight != 0
            before = self.masks.get(layer.name)
            if before is not None:
                counts = torch.stack([(active & ~before).sum(), (before & ~active).sum()])
                found[layer.name] = all_reduce(counts, layer.shards.counts)
            self.masks[layer.name] = active
        return {name: tuple(counts.tolist()) for name, counts in found.items()}
