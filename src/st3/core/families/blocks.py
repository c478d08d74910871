"""A block as one weight: its magnitude, what becomes of its weights, and their gradient.

    m     = sqrt(mean of W_i^2)          magnitude of a block, on the scale of its weights
    s     = f(m)                         the method's forward equation, as for a raw weight m
    W_i' = W_i * s / m                   every weight of the block; exactly 0 where s is

Thresholds, ramps and allocations see the magnitudes. The root mean square and not the mean magnitude: it is the block
that costs least squared error that goes first, as with single weights, and soft thresholding m is the group lasso's
proximal operator, as soft thresholding |W| is the lasso's.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..budget.ties import HALF
from ..layers.groups import in_groups
from ..layers.layer import Layer

__all__ = ["block_gradient", "block_magnitudes", "scale_blocks", "spread_over_blocks"]


def block_magnitudes(weight: Tensor, layer: Layer) -> Tensor:
    """Return the magnitude of every block of (some rows of) a weight, in its layout; the weight itself without blocks.

    Half precision is computed in float32. Added up one by one: the bits must not depend on how many rows there are.

    >>> from torch import nn
    >>> from st3.core.layers.find import find_layers
    >>> from st3.core.layers.groups import divide_into_blocks
    >>> layer = divide_into_blocks(find_layers(nn.Linear(4, 1)), 2)[0]
    >>> block_magnitudes(torch.tensor([[1.0, -7.0, 0.0, 0.0]]), layer)
    tensor([[5., 0.]])
    """
    if layer.block == 1:
        return weight
    wide = weight.float() if weight.dtype in HALF else weight
    first, *others = in_groups(wide, layer, layer.block).unbind(-1)
    squares = first.square()
    for part in others:
        squares += part.square()
    return squares.div_(layer.block).sqrt_()


def scale_blocks(weight: Tensor, magnitude: Tensor, sparse: Tensor, layer: Layer, *, out: Tensor) -> None:
    """Write the weights into `out`, each times the ratio of its block's sparse magnitude to its magnitude."""
    ratio = torch.where(sparse != 0, sparse / magnitude, 0.0).unsqueeze(-1)
    blocks = in_groups(weight, layer, layer.block)
    # Not the product alone, which would make some zeros -0.0.
    in_groups(out, layer, layer.block).copy_(torch.where(ratio != 0, blocks * ratio, 0.0))


def spread_over_blocks(mask: Tensor, layer: Layer) -> Tensor:
    """Return the mask of the weights from that of their blocks; the mask itself without blocks."""
    if layer.block == 1:
        return mask
    assert layer.inputs is not None
    return mask.repeat_interleave(layer.block, layer.inputs)


def block_gradient(
    grad: Tensor,
    weight: Tensor,
    magnitude: Tensor,
    sparse: Tensor,
    layer: Layer,
    map_gradient: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the gradient of the weights from that of the sparse ones, as autograd derives it from the equations above.

    With the direction d = W / m of a block, W' = s d. `map_gradient` returns dL/dm from dL/ds, as the method says.
    """
    shape = grad.shape
    grad, weight = (in_groups(each, layer, layer.block) for each in (grad, weight))
    magnitude, sparse = magnitude.unsqueeze(-1), sparse.unsqueeze(-1)
    direction = torch.where(magnitude > 0, weight / magnitude, 0.0)
    ratio = torch.where(magnitude > 0, sparse / magnitude, 0.0)
    along = (grad * direction).sum(-1)  # dL/ds
    change = (map_gradient(along).unsqueeze(-1) - ratio * along.unsqueeze(-1)) / layer.block
    found = torch.empty(shape, dtype=change.dtype, device=change.device)
    in_groups(found, layer, layer.block).copy_(ratio * grad + direction * change)
    return found
