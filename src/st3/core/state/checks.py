"""Whether a state of the optimizer belongs to these layers and this method: checked before it is used."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ..errors import CheckpointError
from ..layers.layer import Layer
from .store import KEYS, RAW, STEP_KEY, Store, entries, learned_name, read_step

__all__ = ["check_learned", "check_loadable", "check_state"]


def check_loadable(
    optimizer: Optimizer, state_dict: Mapping[str, Any], layers: Sequence[Layer], *, learns: str | None = None
) -> None:
    """Raise where a state about to be loaded cannot belong to these layers, or to a method that `learns` that."""
    groups: Sequence[Mapping[str, Any]] = state_dict["param_groups"]
    if not any(STEP_KEY in group for group in groups):
        raise CheckpointError(
            "this optimizer state holds no raw weights: the checkpoint was saved without st3, or after finalize(); "
            "load its model weights alone, or load all of it before calling sparsify"
        )
    here = [p for group in optimizer.param_groups for p in group["params"]]
    found = (entry for _, entry in entries(groups, state_dict["state"]))
    saved = {id(p): entry for p, entry in zip(here, found, strict=False)}
    _refuse_others(saved, layers)
    for layer in layers:
        entry = saved.get(id(layer.parameter), {})
        tensor = next((entry[key] for key in KEYS if key in entry), None)
        if tensor is None:
            _refuse_old(layer, entry)
            raise CheckpointError(
                f"this optimizer state holds no raw weight for layer {layer.name!r}: the checkpoint was saved "
                f"without st3 or with other layers sparsified; use the same include and exclude"
            )
        _check_shape(layer, tensor)
        check_learned(layer, entry, learns)


def check_state(store: Store) -> bool:
    """Whether the optimizers hold tensors of ours for these layers; raise if they belong to another model."""
    found = False
    every = (entry for o in store.optimizers for entry in entries(o.param_groups, o.state))
    _refuse_others({id(p): entry for p, entry in every}, store.layers)
    for layer in store.layers:
        held = store.held(layer)
        if held.keys().isdisjoint(KEYS) and read_step(store.owner(layer)) is not None:
            _refuse_old(layer, {**store.state(layer), **held})
        for key in KEYS:
            if key in held:
                _check_shape(layer, held[key])
                found = True
    return found


def _refuse_others(saved: Mapping[int, Mapping[str, Any]], layers: Sequence[Layer]) -> None:
    mine = {id(layer.parameter) for layer in layers}
    if any(key in entry for parameter, entry in saved.items() if parameter not in mine for key in KEYS):
        raise CheckpointError(
            "the optimizer state holds raw weights of layers that are not sparsified now: use the same include and "
            "exclude as when it was saved"
        )


def _refuse_old(layer: Layer, entry: Mapping[str, Any]) -> None:
    """Raise where a counted state holds the layer's tensor under one of the keys that had no prefix."""
    if key := next((key for key in ("raw", "mask", "active") if key in entry), None):
        raise CheckpointError(
            f"the optimizer state keeps layer {layer.name!r} under {key!r}, as earlier versions of st3 did, and this "
            f"one reads 'st3_{key}': finish the run with the version that began it"
        )


def _check_shape(layer: Layer, tensor: Tensor) -> None:
    if tuple(tensor.shape) != layer.shape:
        raise CheckpointError(
            f"the checkpoint's raw weight of layer {layer.name!r} has shape {tuple(tensor.shape)}, the model's is "
            f"{layer.shape}: this is a checkpoint of another model"
        )


def check_learned(layer: Layer, entry: Mapping[str, Any], learns: str | None) -> None:
    """Raise where a state with raw weights was not saved by a method that learns the same variable."""
    if RAW not in entry:
        return
    names = [name for key in entry if (name := learned_name(key))]
    found = min(names, key=len, default=None)  # what a variable's rule remembers has a longer name
    if found != learns:
        held = f"a learned {found}" if found else "no learned variable"
        needed = f"a learned {learns}" if learns else "none"
        raise CheckpointError(
            f"the optimizer state holds {held} for layer {layer.name!r}, and this method needs {needed}: it was saved "
            f"with another method; use that one"
        )
