"""Where raw weights, masks, scales and learned variables live: in the optimizer's state, beside the momentum.

A checkpoint of model and optimizer is then the whole state, in anybody's trainer. Three rules:

    join      a layer's tensors enter `optimizer.state[p]` only once the optimizer has keys of its own there: Adam
              refuses to load or copy a state without them. Until then they wait here.
    withdraw  during `optimizer.step` they wait here as well, so that the optimizer sees only its own keys.
    load      a tensor that arrives by loading wins. No reference to `optimizer.state` or `param_groups` is kept,
              because loading replaces both.

The store also notices weights that somebody else has written. torch counts how often a tensor was written; after each
of our writes the counts of the parameter and of the tensor kept for it are noted. If later the parameter's has moved
and the tensor's has not, the weights were replaced, and the tensor would silently undo that. Writes through `.data`
cannot be seen.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import CheckpointError
from ..layers.layer import Layer
from ..layers.shards import local

__all__ = ["KEYS", "PREFIX", "STEP_KEY", "Store", "is_ours", "read_step", "write_step"]

STEP_KEY = "st3_step"
KEYS = ("raw", "mask", "active")  # every sparsified weight has one of them
BESIDE = "scale"  # one factor for the whole weight, beside its raw weight
PREFIX = "st3_"  # of learned variables and what their optimizer remembers


def is_ours(key: str) -> bool:
    """Whether a key of an optimizer's state was put there by us."""
    return key in KEYS or key == BESIDE or key.startswith(PREFIX)


def read_step(optimizer: Optimizer) -> int | None:
    """Return the steps counted in `optimizer`, None if it carries no count."""
    count = None
    for group in optimizer.param_groups:
        if STEP_KEY in group:
            count = max(count or 0, int(group[STEP_KEY]))
    return count


def write_step(optimizer: Optimizer, step: int | None) -> None:
    """Write the step count into every group of `optimizer`, or remove it."""
    for group in optimizer.param_groups:
        if step is None:
            group.pop(STEP_KEY, None)
        else:
            group[STEP_KEY] = step


class Store:
    """The tensors of every layer, by key."""

    def __init__(self, layers: Sequence[Layer], owners: Mapping[str, Optimizer]) -> None:
        self.layers = list(layers)
        self.optimizers = list({id(owner): owner for owner in owners.values()}.values())
        self.had_gradient: set[str] = set()  # layers, in the step under way
        self._owners = dict(owners)  # layer name -> optimizer
        self._waiting: dict[str, dict[str, Tensor]] = {layer.name: {} for layer in self.layers}
        # Versions of the parameter and of the tensor kept for it.
        self._noted: dict[str, tuple[int, Tensor, int]] = {}
        # Layers whose tensors were in the optimizer's state before the step under way (or one that an exception ended).
        self.withdrawn: set[str] = set()

    # ---------------------------------------------------------------- questions

    @property
    def step(self) -> int:
        """Optimizer steps counted so far; with several optimizers, of the one that made the most."""
        if len(self.optimizers) == 1:
            return read_step(self.optimizers[0]) or 0
        return max((read_step(optimizer) or 0 for optimizer in self.optimizers), default=0)

    def owner(self, layer: Layer) -> Optimizer:
        """Return the optimizer that updates the layer."""
        return self._owners[layer.name]

    def layers_of(self, optimizer: Optimizer) -> list[Layer]:
        """Return the layers that `optimizer` updates."""
        if len(self.optimizers) == 1:
            return self.layers
        return [layer for layer in self.layers if self._owners[layer.name] is optimizer]

    def state(self, layer: Layer) -> dict[str, Any]:
        """Return the optimizer's state of the layer's parameter; an empty dict, not kept there, if it has none."""
        found: dict[str, Any] = self._owners[layer.name].state.get(layer.parameter, {})
        return found

    def has_joined(self, layer: Layer) -> bool:
        """Whether the layer's tensors lie in the optimizer's state (or did before the step under way)."""
        return layer.name in self.withdrawn or any(key in self.state(layer) for key in KEYS)

    def may_join(self, layer: Layer) -> bool:
        """Whether the optimizer has, or is about to make, keys of its own for the layer."""
        if layer.name in self.had_gradient or layer.name in self.withdrawn:
            return True
        return self.has_joined(layer) or any(not is_ours(key) for key in self.state(layer))

    def own_tensors(self, layer: Layer) -> list[Tensor]:
        """Return the local parts of what the optimizer itself remembers of each of the layer's weights."""
        return [
            local(value)
            for key, value in self.state(layer).items()
            if not is_ours(key) and isinstance(value, Tensor) and value.shape == layer.parameter.shape
        ]

    def saved_keys(self) -> set[str]:
        """Return which of `KEYS` the optimizers' states hold for these layers."""
        return {key for layer in self.layers for key in KEYS if key in self.state(layer)}

    # ---------------------------------------------------------------- tensors

    def find(self, layer: Layer, key: str) -> Tensor | None:
        """Return a tensor of the layer, the loaded one if there are two; None if there is none."""
        state = self._owners[layer.name].state.get(layer.parameter)
        waiting = self._waiting[layer.name]
        if state is not None and key in state:
            waiting.pop(key, None)
            tensor: Tensor = state[key]
            return tensor
        return waiting.get(key)

    def get(self, layer: Layer, key: str) -> Tensor:
        """Return a tensor of the layer on the device of its parameter; a raw weight in its precision as well."""
        waiting = self._waiting[layer.name]
        tensor = waiting[key] if layer.name in self.withdrawn and key in waiting else self.find(layer, key)
        if tensor is None:
            raise CheckpointError(
                f"the {key} of layer {layer.name!r} is gone from the optimizer state; load a checkpoint "
                f"that was saved with st3, or call sparsify again"
            )
        parameter = layer.parameter
        wanted = torch.bool if key in ("mask", "active") else parameter.dtype
        if tensor.device != parameter.device or tensor.dtype != wanted:
            tensor = tensor.to(device=parameter.device, dtype=wanted)
            self.put(layer, key, tensor)
        return tensor

    def get_local(self, layer: Layer, key: str) -> Tensor:
        """Return the part of a tensor that this process holds."""
        tensor = self.get(layer, key)
        return local(tensor) if layer.is_distributed else tensor

    def put(self, layer: Layer, key: str, tensor: Tensor) -> None:
        """Keep a tensor of the layer: beside its others, in the optimizer's state or waiting."""
        if self.has_joined(layer) and layer.name not in self.withdrawn:
            self._owners[layer.name].state[layer.parameter][key] = tensor
        else:
            self._waiting[layer.name][key] = tensor

    def variables(self, layer: Layer) -> dict[str, Tensor]:
        """Return the learned variables of the layer and what their rule remembers, on the device of its weight."""
        state = self.state(layer)
        held = state if any(key.startswith(PREFIX) for key in state) else self._waiting[layer.name]
        device = layer.parameter.device
        return {
            key.removeprefix(PREFIX): value.to(device)
            for key, value in held.items()
            if key.startswith(PREFIX)
        }

    def put_variables(self, layer: Layer, values: Mapping[str, Tensor]) -> None:
        """Replace the learned variables of the layer."""
        self.drop(layer, *(key for key in self.keys_of(layer) if key.startswith(PREFIX)))
        for name, value in values.items():
            self.put(layer, PREFIX + name, value)

    def drop(self, layer: Layer, *keys: str) -> None:
        """Forget the layer's tensors under these keys."""
        for key in keys:
            self._waiting[layer.name].pop(key, None)
            self.state(layer).pop(key, None)
        self._forget_empty(layer)

    def drop_all(self, layer: Layer) -> None:
        """Forget every tensor of the layer."""
        self.withdrawn.discard(layer.name)
        self.drop(layer, *self.keys_of(layer))

    # ---------------------------------------------------------------- the step

    def withdraw(self, layer: Layer) -> None:
        """Take the layer's tensors out of the optimizer's state, which is about to make a step."""
        state = self._owners[layer.name].state.get(layer.parameter)
        if not state:
            return
        waiting = self._waiting[layer.name]
        for key in list(state):
            if key in KEYS or key == BESIDE or key.startswith(PREFIX):
                waiting[key] = state.pop(key)
                self.withdrawn.add(layer.name)
        if not state:
            del self._owners[layer.name].state[layer.parameter]

    def join(self, layer: Layer, key: str, *, anyway: bool = False) -> None:
        """Put the layer's tensors into the optimizer's state, if it has keys of its own there; note their versions.

        `key` is that of the tensor kept for every layer: whoever writes the parameter must write it as well.
        """
        waiting = self._waiting[layer.name]
        self.note(layer, waiting[key] if key in waiting else self.get(layer, key))
        if waiting and (
            anyway or layer.name in self.had_gradient or layer.name in self.withdrawn or self.may_join(layer)
        ):
            self._owners[layer.name].state[layer.parameter].update(waiting)
            waiting.clear()
            self.withdrawn.discard(layer.name)

    def note(self, layer: Layer, tensor: Tensor) -> None:
        """Note that the parameter and the tensor kept for it are as we left them."""
        self._noted[layer.name] = (_version(layer, layer.parameter), tensor, _version(layer, tensor))

    def was_written(self, layer: Layer) -> bool:
        """Whether the parameter was written since it was noted."""
        noted = self._noted.get(layer.name)
        return noted is not None and _version(layer, layer.parameter) != noted[0]

    def was_replaced(self, layer: Layer, key: str) -> bool:
        """Whether the parameter was written since it was noted, and the tensor kept for it was not."""
        noted = self._noted.get(layer.name)
        if noted is None or _version(layer, layer.parameter) == noted[0]:
            return False
        tensor = self.find(layer, key)
        return tensor is not None and tensor is noted[1] and _version(layer, tensor) == noted[2]

    def follow_loading(self) -> None:
        """Note that a state was loaded: what was withdrawn before, or waits for it under the same keys, is outdated."""
        self.withdrawn.clear()
        for layer in self.layers:
            for key in self.state(layer):
                self._waiting[layer.name].pop(key, None)

    def keys_of(self, layer: Layer) -> list[str]:
        """Return the keys of everything that is kept for the layer."""
        return [key for key in (*self.state(layer), *self._waiting[layer.name]) if is_ours(key)]

    def _forget_empty(self, layer: Layer) -> None:
        owner = self._owners[layer.name]
        if layer.parameter in owner.state and not owner.state[layer.parameter]:
            del owner.state[layer.parameter]  # as it was before us


def _version(layer: Layer, tensor: Tensor) -> int:
    """Return a number that grows whenever the tensor is written: a DTensor as such, or its local part."""
    return tensor._version + local(tensor)._version if layer.is_distributed else tensor._version
