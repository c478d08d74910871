"""What to warn of before training: too little is covered, an empty filter would become NaN, updates would be lost."""

import math

import torch

from ..errors import name_some
from .layer import Layers

__all__ = ["describe_gaps", "describe_half_precision", "describe_weight_norm"]

LEAST = 0.5  # of the trained weights that nobody asked to leave out
NAMED = 3  # weights named in the warning; the others are counted


def describe_gaps(layers: Layers) -> str | None:
    """Return what to say where less than half of the weights is covered; None where more is.

    Counted are trained weights with two or more axes. Embeddings, biases and whatever the user left out do not count.

    >>> import st3
    >>> from torch import nn
    >>> model = nn.ModuleDict({"lstm": nn.LSTM(8, 16, bias=False), "head": nn.Linear(16, 4)})
    >>> describe_gaps(st3.layers(model)).partition(":")[0]
    'only 64 of 1,600 weights (4.0 %) are covered'
    >>> describe_gaps(st3.layers(model, exclude="lstm")) is None
    True
    """
    gaps = sorted((s for s in layers.skipped if s.is_gap), key=lambda s: -math.prod(s.shape))
    covered = sum(layer.numel for layer in layers)
    total = covered + sum(math.prod(gap.shape) for gap in gaps)
    if covered >= LEAST * total:
        return None
    share = 100 * covered / total
    named = "; ".join(f"{gap.name} ({gap.reason})" for gap in gaps[:NAMED])
    more = f"; and {len(gaps) - NAMED} more" if len(gaps) > NAMED else ""
    return (
        f"only {covered:,} of {total:,} weights ({share:.1f} %) are covered: the sparsity is asked of these alone, "
        f"and the others stay dense: {named}{more}. Cover them with include=[st3.USUAL, ...], or name them in exclude "
        f"if they are to stay dense; st3.layers(model) shows all of them"
    )


def describe_weight_norm(layers: Layers) -> str | None:
    """Return what to say where layers are under weight_norm; None where none is."""
    names = [layer.name for layer in layers if layer.is_direction]
    if not names:
        return None
    return (
        f"weight_norm divides each filter of {name_some(names)} by its norm, so a filter that loses its last weight "
        f"becomes NaN: remove weight_norm before sparsifying (torch.nn.utils.parametrize.remove_parametrizations), or "
        f"keep the sparsity low enough for every filter to keep a weight"
    )


def describe_half_precision(layers: Layers) -> str | None:
    """Return what rounding does to raw weights in half precision; None if there are none."""
    half = [layer for layer in layers if layer.parameter.dtype in (torch.bfloat16, torch.float16)]
    if not half:
        return None
    dtype, named = half[0].parameter.dtype, name_some([layer.name for layer in half])
    return (
        f"the raw weights of {named} are {dtype}, which rounds away an update smaller "
        f"than 1/{round(4 / torch.finfo(dtype).eps)} of a weight, so that training may stall: keep parameters in "
        f"float32 and compute under torch.autocast (with fully_shard: MixedPrecisionPolicy), or use an optimizer "
        f"that rounds stochastically"
    )
