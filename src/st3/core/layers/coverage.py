"""What to warn of before training: most of the model is not covered, or an empty filter would become NaN."""

import math

from ..errors import name_some
from .layer import Layers

__all__ = ["describe_gaps", "describe_weight_norm"]

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
