"""Variables that are learned beside the weights (thresholds, probabilities), and what their rule remembers of them.

They live in the optimizer's state of the weight they belong to, under keys that begin with `st3_`, by the rules of the
raw weights (store.py): they join once the optimizer has keys of its own there and wait here until then, the optimizer's
step does not see them, and what arrives by loading wins.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .errors import CheckpointError
from .layers import Layer

__all__ = ["LEARNED", "PREFIX", "Variables", "advance", "check_learned"]

PREFIX = "st3_"
LEARNED = ("threshold", "probability")  # the names of variables; what rules remember has longer ones


class Variables:
    """The learned variables of every layer: name -> tensor. A layer without one has an empty dict."""

    def __init__(self, owners: Mapping[str, Optimizer]) -> None:
        self._owners = dict(owners)
        self._waiting: dict[str, dict[str, Tensor]] = {}

    def of(self, layer: Layer) -> dict[str, Tensor]:
        """Return the variables of a layer, on the device of its weight."""
        state = self._state(layer)
        joined = {key.removeprefix(PREFIX): state[key] for key in state if key.startswith(PREFIX)}
        found = joined or self._waiting.get(layer.name, {})
        return {name: value.to(layer.parameter.device) for name, value in found.items()}

    def put(self, layer: Layer, values: Mapping[str, Tensor], *, join: bool) -> None:
        """Put the variables of a layer into the optimizer's state (`join`), or keep them waiting here."""
        self.drop(layer)
        if join:
            state = self._owners[layer.name].state[layer.parameter]
            state.update({PREFIX + name: value for name, value in values.items()})
        elif values:
            self._waiting[layer.name] = dict(values)

    def move(self, layer: Layer, *, join: bool) -> None:
        """Move the variables of a layer into the optimizer's state, or out of it."""
        if values := self.of(layer):
            self.put(layer, values, join=join)

    def drop(self, layer: Layer) -> None:
        """Forget the variables of a layer."""
        self._waiting.pop(layer.name, None)
        state = self._state(layer)
        for key in [key for key in state if key.startswith(PREFIX)]:
            del state[key]

    def _state(self, layer: Layer) -> dict[str, Any]:
        found: dict[str, Any] = self._owners[layer.name].state.get(layer.parameter, {})
        return found


@torch.no_grad()
def advance(
    kind: type[Optimizer],
    settings: Mapping[str, Any],
    name: str,
    values: Sequence[dict[str, Tensor]],
    gradients: Sequence[Tensor],
) -> None:
    """Move the variables `name` among `values` by one step of an optimizer of that `kind`, in place.

    What it remembers (momentum, moments) is read from the same dicts and put back there, as `name_momentum_buffer` and
    so on: the rule is torch's own, the memory ours.
    """
    variables = [each[name] for each in values]
    optimizer = kind([{"params": variables, **settings}])  # type: ignore[call-arg]
    for variable, each, gradient in zip(variables, values, gradients, strict=True):
        memory = {key.removeprefix(f"{name}_"): value for key, value in each.items() if key != name}
        if memory:
            optimizer.state[variable] = memory
        variable.grad = gradient.to(variable.dtype)
    optimizer.step()
    for variable, each in zip(variables, values, strict=True):
        variable.grad = None
        memory = {key: value for key, value in optimizer.state[variable].items() if value is not None}
        each.update({f"{name}_{key}": torch.as_tensor(value) for key, value in memory.items()})


def check_learned(layer: Layer, entry: Mapping[str, Any], learns: str | None) -> None:
    """Raise where a state with raw weights was not saved by a method that learns the same variable."""
    if "raw" not in entry:
        return
    found = next((name for name in LEARNED if PREFIX + name in entry), None)
    if found != learns:
        held = f"a learned {found}" if found else "no learned variable"
        needed = f"a learned {learns}" if learns else "none"
        raise CheckpointError(
            f"the optimizer state holds {held} for layer {layer.name!r}, and this method needs {needed}: it was saved "
            f"with another method; use that one"
        )
