"""Random masks with the sparsity and the multiply-adds that the paper publishes for its trained networks.

The trained networks are not available, so their densities per layer are modelled: a weight that is used at p pixels is
kept with a probability proportional to a power of p, at most one. Power and factor follow from two published numbers,
the sparsity and the multiply-adds. Which weights of a layer are kept is random.
"""

import math

import torch
from torch import Tensor, nn

from st3.core.layers.find import find_layers
from st3.measure.macs import count_macs

# Sparsity: millions of multiply-adds (appendix of the ST-3 paper).
PUBLISHED = {
    ("resnet50", "st3"): {0.8: 1215, 0.9: 764, 0.95: 436, 0.98: 220},
    ("resnet50", "sigma"): {0.8: 739, 0.9: 397, 0.95: 219, 0.98: 116},
    ("mobilenet_v1", "st3"): {0.8: 181, 0.89: 119, 0.941: 74},
    ("mobilenet_v1", "sigma"): {0.8: 135, 0.89: 86, 0.941: 52},
}


def layer_densities(weights: Tensor, pixels: Tensor, density: float, power: float) -> Tensor:
    """Return the density of each layer for a power; `density` is the overall one."""
    low, high = -80.0, 80.0
    for _ in range(200):
        middle = (low + high) / 2
        shares = (power * pixels.log() + middle).clamp(max=0).exp()
        low, high = (middle, high) if (weights * shares).sum() < density * weights.sum() else (low, middle)
    return shares


def densities(weights: list[int], macs: list[int], density: float, wanted: float) -> list[float]:
    """Return the densities of the layers that leave `density` of all weights and `wanted` multiply-adds.

    >>> [round(share, 2) for share in densities([100, 100], [100, 1000], 0.5, 300)]
    [0.78, 0.22]
    """
    sizes, work = torch.tensor(weights, dtype=torch.float64), torch.tensor(macs, dtype=torch.float64)
    pixels = work / sizes
    low, high = -8.0, 8.0
    for _ in range(80):
        power = (low + high) / 2
        shares = layer_densities(sizes, pixels, density, power)
        low, high = (power, high) if (work * shares).sum() < wanted else (low, power)
    if not math.isclose(float((work * shares).sum()), wanted, rel_tol=1e-3):
        raise ValueError(f"no densities leave {density:.2%} of the weights and {wanted:.3g} multiply-adds")
    return [float(share) for share in shares]


def published_mask(
    model: nn.Module, network: str, sparsity: float, method: str, picture: Tensor
) -> nn.Module:
    """Zero weights of an untrained network as in the paper's network of that method and sparsity; return the model."""
    layers = find_layers(model, trained_only=False)
    counted = count_macs(model, picture)
    macs = [counted.of(layer.parameter) or 0 for layer in layers]
    wanted = 1e6 * PUBLISHED[network, method][sparsity]
    shares = densities([layer.parameter.numel() for layer in layers], macs, 1 - sparsity, wanted)
    with torch.no_grad():
        for layer, share in zip(layers, shares, strict=True):
            layer.parameter.mul_(torch.rand_like(layer.parameter) < share)
            layer.parameter.mul_(share**-0.5)  # keeps the magnitude of activations
    return model
