"""Consecutive inputs that one output takes from one place of the kernel, as N:M groups and blocks see a layer.

For a convolution they lie along the input channels (as if its weight were stored output, height, width, input), for a
linear layer along its inputs. A layer whose inputs cannot be divided stays dense, with the reason.
"""

from dataclasses import replace

from torch import Tensor

from .layer import Layer, Layers, Skipped

__all__ = ["divide_into_blocks", "in_groups", "keep_divisible"]


def in_groups(weight: Tensor, layer: Layer, size: int) -> Tensor:
    """Return a view of (some rows of) the layer's weight in which the last axis is the group.

    >>> import torch
    >>> from torch import nn
    >>> from st3.core.layers.find import find_layers
    >>> layer = find_layers(nn.Linear(4, 2))[0]
    >>> in_groups(torch.arange(8).view(2, 4), layer, 2)
    tensor([[[0, 1],
             [2, 3]],
    <BLANKLINE>
            [[4, 5],
             [6, 7]]])
    """
    assert layer.inputs is not None
    # Not -1 for the number of groups: a process may hold no row of a sharded weight.
    groups: Tensor = weight.unflatten(layer.inputs, (weight.shape[layer.inputs] // size, size))
    return groups.movedim(layer.inputs + 1, -1)


def keep_divisible(layers: Layers, size: int, groups: str, pattern: str) -> Layers:
    """Return the layers whose inputs can be divided into groups of `size`; the others are skipped, with the reason.

    `groups` and `pattern` are words for messages: "2:4 groups" and "2:4 sparse".
    """
    covered, skipped = [], []
    for layer in layers:
        if reason := _why_not(layer, size, groups):
            skipped.append(Skipped(layer.name, layer.shape, reason, layer.kind))
        else:
            covered.append(layer)
    if not covered:
        reasons = "; ".join(f"{s.name}: {s.reason}" for s in skipped[:5])
        raise LookupError(f"no layer can be {pattern} ({reasons})")
    return Layers(covered, [*layers.skipped, *skipped])


def divide_into_blocks(layers: Layers, block: int) -> Layers:
    """Return the layers with their weights in blocks, which are zeroed together; those that have none are skipped."""
    if block == 1:
        return layers
    found = keep_divisible(layers, block, "blocks", f"divided into blocks of {block}")
    reasons = {skipped.name: skipped.reason for skipped in found.skipped}
    if lost := [layer.name for layer in layers if layer.sparsity is not None and layer.name in reasons]:
        raise ValueError(
            f"layer_sparsity names {lost[0]!r}, which stays dense with block={block}: {reasons[lost[0]]}; leave it out"
        )
    return Layers([replace(layer, block=block) for layer in found], found.skipped)


def _why_not(layer: Layer, size: int, groups: str) -> str | None:
    if layer.inputs is None:
        return f"{layer.kind} has no single axis of inputs for {groups}"
    if layer.shards.filters:
        raise ValueError(
            f"sharding cuts the inputs of layer {layer.name!r} ({layer.kind}) apart, and with them its {groups}: "
            f"exclude it, or give it to fully_shard as one of its ignored_params"
        )
    # A transposed convolution in groups holds the inputs of one part after the other: no group may cross over.
    inputs = layer.shape[layer.inputs] // layer.filters.groups
    if inputs % size:
        return (
            f"{inputs} input channel{'s'[: inputs > 1]} cannot be divided into {groups.split()[-1]} of {size}"
        )
    return None
