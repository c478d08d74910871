"""Where raw weights (or masks) and the step count live: in the optimizer, beside the momentum.

So a checkpoint of model and optimizer is the whole state, in anybody's trainer. Three rules: a tensor joins
`optimizer.state[p]` only once the optimizer has put its own keys there (Adam refuses to load or copy a state without
them), until then it waits here; a tensor that arrives by loading wins; and no reference to `optimizer.state` or
`param_groups` is kept, because loading replaces both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .errors import CheckpointError
from .layers import Layer
from .shards import local

__all__ = ["KEYS", "STEP_KEY", "Store", "check_loadable", "check_state", "is_ours", "read_step", "write_step"]

STEP_KEY = "st3_step"
KEYS = ("raw", "mask", "active")  # one of them per weight
BESIDE = ("scale",)  # a factor for the whole weight, beside its raw weight


def is_ours(key: str) -> bool:
    """Tell whether a key of an optimizer's state was put there by us."""
    return key in KEYS or key in BESIDE


def read_step(optimizer: Optimizer) -> int | None:
    """Return the steps counted in `optimizer`, None if it carries no count."""
    counts = [int(group[STEP_KEY]) for group in optimizer.param_groups if STEP_KEY in group]
    return max(counts) if counts else None


def write_step(optimizer: Optimizer, step: int | None) -> None:
    """Write the step count into every group of `optimizer`, or take it out."""
    for group in optimizer.param_groups:
        if step is None:
            group.pop(STEP_KEY, None)
        else:
            group[STEP_KEY] = step


@dataclass
class _Seen:
    """What a parameter and its tensor looked like when we last wrote them."""

    parameter_versions: tuple[int, ...]
    tensor: Tensor
    tensor_versions: tuple[int, ...]


class Store:
    """One tensor per layer under `key`: the raw weight, a mask or a factor."""

    def __init__(self, owners: Mapping[str, Optimizer], key: str) -> None:
        self.key = key
        self._owners = dict(owners)  # layer name -> optimizer
        self._waiting: dict[str, Tensor] = {}
        self._seen: dict[str, _Seen] = {}

    def owner(self, layer: Layer) -> Optimizer:
        """Return the optimizer that updates the layer."""
        return self._owners[layer.name]

    def has_joined(self, layer: Layer) -> bool:
        """Tell whether the layer's tensor lies in the optimizer's state."""
        return self.key in self.owner(layer).state.get(layer.parameter, {})

    def has_mask(self, layer: Layer) -> bool:
        """Tell whether the optimizer's state holds a fixed mask for the layer."""
        return "mask" in self.owner(layer).state.get(layer.parameter, {})

    def find(self, layer: Layer) -> Tensor | None:
        """Return the layer's tensor, the loaded one if there are two."""
        state = self.owner(layer).state.get(layer.parameter, {})
        if self.key in state:
            self._waiting.pop(layer.name, None)
            tensor: Tensor = state[self.key]
            return tensor
        return self._waiting.get(layer.name)

    def get(self, layer: Layer) -> Tensor:
        """Return the layer's tensor on the device and in the precision of its parameter."""
        tensor = self.find(layer)
        if tensor is None:
            raise CheckpointError(
                f"the {self.key} of layer {layer.name!r} is gone from the optimizer state; load a checkpoint "
                f"that was saved with st3, or call sparsify again"
            )
        parameter = layer.parameter
        wanted = torch.bool if self.key in ("mask", "active") else parameter.dtype
        if tensor.device != parameter.device or tensor.dtype != wanted:
            tensor = tensor.to(device=parameter.device, dtype=wanted)
            self.put(layer, tensor, join=self.has_joined(layer))
        return tensor

    def take(self, layer: Layer) -> Tensor:
        """Take the layer's tensor out, so that the optimizer sees only its own keys."""
        tensor = self.get(layer)
        self.drop(layer)
        return tensor

    def put(self, layer: Layer, tensor: Tensor, *, join: bool) -> None:
        """Put the layer's tensor into the optimizer's state (`join`), or keep it waiting here."""
        if join:
            self.owner(layer).state[layer.parameter][self.key] = tensor
            self._waiting.pop(layer.name, None)
        else:
            self._waiting[layer.name] = tensor

    def drop(self, layer: Layer, key: str | None = None) -> None:
        """Forget the layer's tensor (or one under another key)."""
        self._waiting.pop(layer.name, None)
        state = self.owner(layer).state
        if layer.parameter in state:
            state[layer.parameter].pop(key or self.key, None)
            if not state[layer.parameter]:
                del state[layer.parameter]  # as it was before us

    def remember(self, layer: Layer, tensor: Tensor) -> None:
        """Note the versions of parameter and tensor as we leave them."""
        self._seen[layer.name] = _Seen(_versions(layer.parameter), local(tensor), _versions(tensor))

    def was_replaced(self, layer: Layer) -> bool:
        """Tell whether the parameter was written since `remember`, and its tensor was not."""
        seen = self._seen.get(layer.name)
        tensor = self.find(layer)
        if seen is None or tensor is None or _versions(layer.parameter) == seen.parameter_versions:
            return False
        return local(tensor) is seen.tensor and _versions(tensor) == seen.tensor_versions


def _versions(tensor: Tensor) -> tuple[int, ...]:
    """Return numbers that change whenever the tensor is written: of a DTensor as such, and of its local part."""
    part = local(tensor)
    return (part._version,) if part is tensor else (tensor._version, part._version)


def check_loadable(
    optimizer: Optimizer, state_dict: Mapping[str, Any], layers: Sequence[Layer], first: float
) -> None:
    """Raise where a state about to be loaded cannot belong to these layers; `first` is the ramp's value at step 0."""
    groups: Sequence[Mapping[str, Any]] = state_dict["param_groups"]
    steps = [int(group[STEP_KEY]) for group in groups if STEP_KEY in group]
    if not steps:
        raise CheckpointError(
            "this optimizer state holds no raw weights: the checkpoint was saved without st3; load it before calling "
            "sparsify, or detach() first"
        )
    saved_keys = [key for group in groups for key in group["params"]]
    here = [p for group in optimizer.param_groups for p in group["params"]]
    saved = {id(p): state_dict["state"].get(key, {}) for p, key in zip(here, saved_keys, strict=False)}
    _refuse_others(saved, layers)
    for layer in layers:
        entry = saved.get(id(layer.parameter), {})
        tensor = next((entry[key] for key in KEYS if key in entry), None)
        if tensor is None:
            if (entry and max(steps) > 0) or first > 0.0:
                raise CheckpointError(
                    f"this optimizer state holds no raw weight for layer {layer.name!r}: the checkpoint was saved "
                    f"without st3 or with other layers sparsified; use the same include and exclude"
                )
        else:
            _check_shape(layer, tensor)


def check_state(layers: Sequence[Layer], owners: Mapping[str, Optimizer]) -> bool:
    """Tell whether the optimizers hold tensors of ours for these layers; raise if they belong to another model."""
    found = False
    _refuse_others({id(p): state for o in owners.values() for p, state in o.state.items()}, layers)
    for layer in layers:
        state = owners[layer.name].state.get(layer.parameter, {})
        for key in KEYS:
            if key in state:
                _check_shape(layer, state[key])
                found = True
    return found


def _refuse_others(saved: Mapping[int, Mapping[str, Any]], layers: Sequence[Layer]) -> None:
    mine = {id(layer.parameter) for layer in layers}
    if any(key in entry for parameter, entry in saved.items() if parameter not in mine for key in KEYS):
        raise CheckpointError(
            "the optimizer state holds raw weights of layers that are not sparsified now: use the same include and "
            "exclude as when it was saved"
        )


def _check_shape(layer: Layer, tensor: Tensor) -> None:
    if tuple(tensor.shape) != layer.shape:
        raise CheckpointError(
            f"the checkpoint's raw weight of layer {layer.name!r} has shape {tuple(tensor.shape)}, the model's is "
            f"{layer.shape}: this is a checkpoint of another model"
        )
