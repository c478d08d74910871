"""N:M groups: of every m consecutive inputs that one output takes from one place of the kernel, n weights are active.

For a convolution the groups lie along the input channels (as if its weight were stored output, height, width, input),
for a linear layer along its inputs. A layer whose inputs cannot be divided into groups stays dense, with the reason.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from .layers import Layer, Layers, Skipped
from .method import GroupMethod, Method
from .shards import all_reduce
from .store import Store

__all__ = ["FixedScales", "fit_groups", "in_groups", "n_largest", "write_groups"]

HALF = (torch.bfloat16, torch.float16)
MOST_PAIRS = 16  # group size up to which comparing all pairs is faster than sorting


def in_groups(weight: Tensor, layer: Layer, m: int) -> Tensor:
    """Return a view of (some rows of) the layer's weight in which the last axis is the group.

    >>> from torch import nn
    >>> from .layers import find_layers
    >>> layer = find_layers(nn.Linear(4, 2))[0]
    >>> in_groups(torch.arange(8).view(2, 4), layer, 2)
    tensor([[[0, 1],
             [2, 3]],
    <BLANKLINE>
            [[4, 5],
             [6, 7]]])
    """
    assert layer.inputs is not None
    groups: Tensor = weight.unflatten(layer.inputs, (-1, m))
    return groups.movedim(layer.inputs + 1, -1)


def n_largest(magnitude: Tensor, n: int) -> Tensor:
    """Return the mask of the n largest magnitudes of every group; of equal ones the first come first.

    >>> n_largest(torch.tensor([[0.1, 0.4, 0.4, 0.4], [3.0, 1.0, 2.0, 0.0]]), 2)
    tensor([[False,  True,  True, False],
            [ True, False,  True, False]])
    """
    m = magnitude.shape[-1]
    if m > MOST_PAIRS:
        order = magnitude.argsort(dim=-1, descending=True, stable=True)
        return torch.zeros_like(magnitude, dtype=torch.bool).scatter_(-1, order[..., :n], True)
    parts = magnitude.unbind(-1)
    before = [torch.full_like(part, i, dtype=torch.int8) for i, part in enumerate(parts)]  # if all were equal
    for i in range(m):
        for j in range(i + 1, m):
            overtakes = (parts[j] > parts[i]).view(torch.int8)
            before[i] += overtakes
            before[j] -= overtakes
    mask = torch.empty_like(magnitude, dtype=torch.bool)  # laid out in memory as the magnitudes are
    for count, part in zip(before, mask.unbind(-1), strict=True):
        torch.lt(count, n, out=part)
    return mask


def write_groups(
    method: GroupMethod, layer: Layer, raw: Tensor, sparse: Tensor, scale: Tensor | None
) -> None:
    """Write the sparse weight of (some rows of) `raw` into `sparse`; half precision is computed in float32."""
    is_half = raw.dtype in HALF
    source = in_groups(raw.float() if is_half else raw, layer, method.m)
    target = torch.empty_like(source) if is_half else in_groups(sparse, layer, method.m)
    method.sparse_weight(source, n_largest(source.abs(), method.n), target)
    if scale is not None:
        target.mul_(scale)
    if is_half:
        in_groups(sparse, layer, method.m).copy_(target)


class FixedScales:
    """One factor per weight, found from its first raw weight and kept beside it in the optimizer's state."""

    def __init__(self, owners: Mapping[str, Optimizer]) -> None:
        self._store = Store(owners, "scale")

    def of(self, method: Method, layer: Layer, raw: Tensor, *, join: bool) -> Tensor | None:
        """Return the layer's factor, finding it now if there is none yet; None if the method has no such thing."""
        if not isinstance(method, GroupMethod) or not method.has_scale:
            return None
        if self._store.find(layer) is None:
            self._store.put(layer, _first_scale(method, layer, raw), join=False)
        scale = self._store.get(layer)
        self._store.put(layer, scale, join=join)
        return scale

    def drop(self, layer: Layer) -> None:
        """Forget the layer's factor."""
        self._store.drop(layer)


def _first_scale(method: GroupMethod, layer: Layer, raw: Tensor) -> Tensor:
    """Return the factor in the weight's own precision: what a checkpoint would make of it."""
    wide = raw if raw.dtype == torch.float64 else raw.float()
    source = in_groups(wide, layer, method.m)
    sparse = torch.empty_like(source)
    method.sparse_weight(source, n_largest(source.abs(), method.n), sparse)

    def total(values: Tensor) -> Tensor:
        return all_reduce(values.sum(), layer.shards.counts)

    return method.first_scale(source, sparse, total).to(raw.dtype)


def fit_groups(layers: Layers, method: GroupMethod) -> Layers:
    """Return the layers whose inputs divide into groups; the others are skipped, with the reason."""
    covered, skipped = [], []
    for layer in layers:
        if reason := _why_not(layer, method):
            skipped.append(Skipped(layer.name, layer.shape, reason, layer.kind))
        else:
            covered.append(layer)
    if not covered:
        reasons = "; ".join(f"{s.name}: {s.reason}" for s in skipped[:5])
        raise LookupError(f"no layer can be {method.n}:{method.m} sparse ({reasons})")
    return Layers(covered, [*layers.skipped, *skipped])


def _why_not(layer: Layer, method: GroupMethod) -> str | None:
    if layer.inputs is None:
        return f"{layer.kind} has no single axis of inputs for {method.n}:{method.m} groups"
    if layer.shards.filters:
        raise ValueError(
            f"sharding cuts the inputs of layer {layer.name!r} ({layer.kind}) apart, and with them its "
            f"{method.n}:{method.m} groups: exclude it, or give it to fully_shard as one of its ignored_params"
        )
    # A transposed convolution in groups holds the inputs of one block after the other: no group may cross over.
    inputs = layer.shape[layer.inputs] // layer.filters.groups
    if inputs % method.m:
        return f"{inputs} input channel{'s'[: inputs > 1]} cannot be divided into groups of {method.m}"
    return None
