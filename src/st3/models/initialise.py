"""The initial weights of the paper's networks: normal with standard deviation √(2 / fan-in)."""

import math

from torch import nn

__all__ = ["initialise"]


def initialise(model: nn.Module) -> None:
    """Draw the weights of all convolutions and linear layers; set batch norms to the identity.

    The classifier has the factor 2 as well, although no ReLU follows it, as in the authors' program. The fan-in is the
    number of weights that feed one output, which `weight[0]` holds: 3·3 for a depthwise 3×3 convolution.

    >>> layer = nn.Conv2d(8, 8, 3, groups=8, bias=False)
    >>> initialise(layer)
    >>> layer.weight[0].numel()
    9
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan_in))
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
