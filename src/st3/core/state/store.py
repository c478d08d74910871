"""Where raw weights, masks, scales and learned variables live: in the optimizer, so that a checkpoint of model and
optimizer is the whole state, in anybody's trainer.

    optimizer.state[p]           beside the momentum, from the first step in which the optimizer has moved p
    param_groups["st3_waiting"]  until then, by the position of p in its group: Adam takes a state that is not empty
                                 for its own and refuses to load, copy or use one without its keys

Both are saved, loaded, copied and pickled by torch. Two rules:

    withdraw  during `optimizer.step` the tensors wait here, so that the optimizer sees only its own keys
    load      what is loaded replaces what was there. No reference to `optimizer.state` or `param_groups` is kept,
              because loading replaces both.

The store also notices weights that somebody else has written. torch counts how often a tensor was written; after each
of our writes the counts of the parameter and of the tensor kept for it are noted. If later the parameter's has moved
and the tensor's has not, the weights were replaced, and the tensor would silently undo that. Writes through `.data`
cannot be seen.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import CheckpointError
from ..layers.layer import Layer
from ..layers.shards import local

__all__ = [
    "ACTIVE",
    "KEYS",
    "MASK",
    "OWN_GROUP_KEYS",
    "RAW",
    "SCALE",
    "STEP_KEY",
    "ZEROS",
    "Store",
    "entries",
    "is_ours",
    "learned_name",
    "read_step",
    "write_step",
]

PREFIX = "st3_"  # of all our keys: optimizers have a "mask" or a "scale" too
STEP_KEY = PREFIX + "step"
WAITING = PREFIX + "waiting"
OWN_GROUP_KEYS = (STEP_KEY, WAITING)
RAW, MASK, ACTIVE = PREFIX + "raw", PREFIX + "mask", PREFIX + "active"
KEYS = (RAW, MASK, ACTIVE)  # every sparsified weight has one of them
SCALE = PREFIX + "scale"  # one factor for the whole weight, beside its raw weight
ZEROS = (
    PREFIX + "zeros"
)  # how many weights of the layer the target zeroes, a plain number, beside its raw weight


def is_ours(key: str) -> bool:
    """Whether a key of an optimizer's state was put there by us."""
    return key.startswith(PREFIX)


def learned_name(key: str) -> str | None:
    """Return the name of the learned variable, or of what its rule remembers, under this key; None for other keys."""
    return key.removeprefix(PREFIX) if is_ours(key) and key not in (*KEYS, SCALE, ZEROS) else None


def entries(
    groups: Iterable[Mapping[str, Any]], state: Mapping[Any, Mapping[str, Any]]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each parameter of an optimizer, or its number in a state dict, with all that is kept for it."""
    for group in groups:
        waiting = group.get(WAITING, {})
        for position, parameter in enumerate(group["params"]):
            yield parameter, {**state.get(parameter, {}), **waiting.get(str(position), {})}


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
        self.moved: set[str] = (
            set()
        )  # layers for which the optimizer had a gradient in the last step, now complete
        # The tensors of layers whose optimizer makes a step (or made one that an exception ended).
        self.withdrawn: dict[str, dict[str, Tensor]] = {}
        self._from_state: set[str] = set()  # those of them that lay in the optimizer's state
        self._owners = dict(owners)  # layer name -> optimizer
        # Numbers of the parameter's group and, as a string, of the parameter in it: what a state dict keeps.
        self._places: dict[int, tuple[int, str]] = {
            id(parameter): (number, str(position))
            for owner in self.optimizers
            for number, group in enumerate(owner.param_groups)
            for position, parameter in enumerate(group["params"])
        }
        # Versions of the parameter and of the tensor kept for it.
        self._noted: dict[str, tuple[int, Tensor, int]] = {}

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

    def held(self, layer: Layer) -> dict[str, Any]:
        """Return where the layer's tensors are: withdrawn, among the optimizer's own keys in its state, or waiting."""
        if layer.name in self.withdrawn:
            return self.withdrawn[layer.name]
        state = self._owners[layer.name].state.get(layer.parameter)
        if state and not state.keys().isdisjoint(KEYS):
            found: dict[str, Any] = state
            return found
        group, position = self._place(layer)
        waiting: dict[str, Any] = group.get(WAITING, {}).get(position, {})
        return waiting

    def is_waiting(self, layer: Layer) -> bool:
        """Whether the optimizer has not moved the layer yet: it had no gradient."""
        group, position = self._place(layer)
        return position in group.get(WAITING, {})

    def own_tensors(self, layer: Layer) -> list[Tensor]:
        """Return the local parts of what the optimizer itself remembers of each of the layer's weights."""
        return [
            local(value)
            for key, value in self.state(layer).items()
            if not is_ours(key) and isinstance(value, Tensor) and value.shape == layer.parameter.shape
        ]

    def saved_keys(self) -> set[str]:
        """Return which of `KEYS` the optimizers hold for these layers."""
        return {key for layer in self.layers for key in KEYS if key in self.held(layer)}

    # ---------------------------------------------------------------- tensors

    def find(self, layer: Layer, key: str) -> Tensor | None:
        """Return a tensor of the layer; None if there is none."""
        return self.held(layer).get(key)

    def get(self, layer: Layer, key: str) -> Tensor:
        """Return a tensor of the layer on the device of its parameter; a raw weight in its precision as well."""
        held = self.withdrawn.get(layer.name) or self.held(layer)
        tensor = held.get(key)
        if tensor is None:
            raise CheckpointError(
                f"the {key.removeprefix(PREFIX)} of layer {layer.name!r} is gone from the optimizer state; load a "
                f"checkpoint that was saved with st3, or call sparsify again"
            )
        parameter = layer.parameter
        wanted = torch.bool if key in (MASK, ACTIVE) else parameter.dtype
        if tensor.device != parameter.device or tensor.dtype != wanted:
            tensor = tensor.to(device=parameter.device, dtype=wanted)
            self.put(layer, key, tensor)
        found: Tensor = tensor
        return found

    def get_local(self, layer: Layer, key: str) -> Tensor:
        """Return the part of a tensor that this process holds."""
        tensor = self.get(layer, key)
        return local(tensor) if layer.is_distributed else tensor

    def put(self, layer: Layer, key: str, value: Tensor | int) -> None:
        """Keep a tensor, or a number, of the layer: beside its others, or waiting."""
        held = self.held(layer)
        if held:
            held[key] = value
        else:
            self._wait(layer, {key: value})

    def variables(self, layer: Layer) -> dict[str, Tensor]:
        """Return the learned variables of the layer and what their rule remembers, on the device of its weight."""
        held, device = self.held(layer), layer.parameter.device
        found: dict[str, Tensor] = {}
        for key, value in held.items():
            if name := learned_name(key):
                held[key] = found[name] = value.to(device)
        return found

    def put_variables(self, layer: Layer, values: Mapping[str, Tensor]) -> None:
        """Replace the learned variables of the layer."""
        self.drop(layer, *(key for key in self.keys_of(layer) if learned_name(key)))
        for name, value in values.items():
            self.put(layer, PREFIX + name, value)

    def keys_of(self, layer: Layer) -> list[str]:
        """Return the keys of everything that is kept for the layer."""
        return [key for key in self.held(layer) if is_ours(key)]

    def drop(self, layer: Layer, *keys: str) -> None:
        """Forget the layer's tensors under these keys; where nothing is left, it is as it was before us."""
        held = self.held(layer)
        for key in keys:
            held.pop(key, None)
        if held:
            return
        self.withdrawn.pop(layer.name, None)
        self._take_waiting(layer)
        state = self._owners[layer.name].state
        if layer.parameter in state and not state[layer.parameter]:
            del state[layer.parameter]

    # ---------------------------------------------------------------- the step

    def withdraw(self, layer: Layer) -> None:
        """Take the layer's tensors out of the optimizer, which is about to make a step."""
        held: dict[str, Any] = {}
        states = self._owners[layer.name].state
        state = states.get(layer.parameter, {})
        for key in [*state]:
            if is_ours(key):
                held[key] = state.pop(key)
        if held:
            self._from_state.add(layer.name)
            if not state:
                del states[layer.parameter]
        if held.keys().isdisjoint(KEYS):
            held |= self._take_waiting(layer)
        if held:
            self.withdrawn[layer.name] = held

    def join(self, layer: Layer, key: str) -> None:
        """Put the layer's tensors into the optimizer: its state, if it has keys of its own there; note their versions.

        `key` is that of the tensor kept for every layer: whoever writes the parameter must write it as well.
        """
        held = self.withdrawn.pop(layer.name, None)
        self.note(layer, self.get(layer, key) if held is None else held[key])
        if layer.name in self._from_state or layer.name in self.moved or self._has_own_keys(layer):
            if held is None:
                held = self._take_waiting(layer)
            self._owners[layer.name].state[layer.parameter].update(held)
        elif held is not None:
            self._wait(layer, held)
        self._from_state.discard(layer.name)

    def _has_own_keys(self, layer: Layer) -> bool:
        """Whether the optimizer keeps something for the layer, so that our tensors may lie beside it."""
        return any(key in KEYS or not is_ours(key) for key in self.state(layer))

    def _place(self, layer: Layer) -> tuple[dict[str, Any], str]:
        """Return the parameter's group, and its position in it."""
        number, position = self._places[id(layer.parameter)]
        return self._owners[layer.name].param_groups[number], position

    def _wait(self, layer: Layer, tensors: dict[str, Any]) -> None:
        group, position = self._place(layer)
        group[WAITING] = {**group.get(WAITING, {}), position: tensors}

    def _take_waiting(self, layer: Layer) -> dict[str, Tensor]:
        """Return the layer's waiting tensors, which wait no longer; a state dict that holds them stays whole."""
        group, position = self._place(layer)
        if position not in group.get(WAITING, {}):
            return {}
        others = {key: tensors for key, tensors in group[WAITING].items() if key != position}
        found = dict(group.pop(WAITING)[position])
        if others:
            group[WAITING] = others
        return found

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
        tensor = self.held(layer).get(key)
        return tensor is not None and tensor is noted[1] and _version(layer, tensor) == noted[2]

    def follow_loading(self) -> None:
        """Note that a state was loaded: what was withdrawn before is outdated."""
        self.withdrawn.clear()
        self._from_state.clear()
        self.moved.clear()


def _version(layer: Layer, tensor: Tensor) -> int:
    """Return a number that grows whenever the tensor is written: a DTensor as such, or its local part."""
    return tensor._version + local(tensor)._version if layer.is_distributed else tensor._version
