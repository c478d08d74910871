"""Count the weights that changed between active and zeroed."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from ..core.layers.layer import Layers
from ..core.layers.shards import all_reduce

__all__ = ["SwitchCounter", "Switches"]


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


class SwitchCounter:
    """Counts every change of every weight between active and zeroed, step by step, in windows of the run.

    One tensor of counts per layer, which is saved with the run. The paper's figure of switches per weight needs it.
    """

    def __init__(self, layers: Layers, windows: int, epochs: int) -> None:
        self.windows, self.epochs = windows, epochs
        self._layers = layers
        self._active = {layer.name: layer.weight != 0 for layer in layers}
        self._counts = {
            layer.name: torch.zeros((windows, *layer.shape), dtype=torch.int32, device=layer.weight.device)
            for layer in layers
        }

    @torch.no_grad()
    def count(self, epoch: int) -> None:
        """Count the changes that the last step of `epoch`, from 0 on, has made."""
        window = epoch * self.windows // self.epochs
        for layer in self._layers:
            active = layer.weight != 0
            self._counts[layer.name][window] += active != self._active[layer.name]
            self._active[layer.name] = active

    def histograms(self) -> dict[str, Any]:
        """Return for each window how many weights switched how often, separately by their state at the end."""
        totals: list[dict[str, Counter[int]]] = [
            {"active": Counter(), "zeroed": Counter()} for _ in range(self.windows)
        ]
        for layer in self._layers:
            active = (layer.weight != 0).cpu()
            for window, counts in enumerate(self._counts[layer.name].cpu()):
                for state, mask in (("active", active), ("zeroed", ~active)):
                    values, numbers = counts[mask].unique(return_counts=True)
                    totals[window][state].update(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
        edges = [-(-number * self.epochs // self.windows) for number in range(self.windows + 1)]
        return {
            "windows": [
                {"first_epoch": first + 1, "last_epoch": last}
                | {
                    state: {str(times): found[times] for times in sorted(found)}
                    for state, found in total.items()
                }
                for first, last, total in zip(edges, edges[1:], totals, strict=False)
            ]
        }

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"active": self._active, "counts": self._counts}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint; raise if that counted in another number of windows."""
        found = {len(counts) for counts in state["counts"].values()}
        if found != {self.windows}:
            raise ValueError(
                f"its switches were counted in {found.pop()} windows, not in {self.windows}: resume with the same "
                f"record.switch_windows"
            )
        for held, name in ((self._active, "active"), (self._counts, "counts")):
            for layer in self._layers:
                held[layer.name] = state[name][layer.name].to(layer.weight.device)
