"""VGG with batch norm and a single classifier layer, for 32×32 pictures (Simonyan & Zisserman, 2015).

The paper reports on "VGG-11". The authors' program builds a network of four convolutions under that name, which is
`vgg11_st3` here; `vgg11` is the usual network of eight convolutions.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from .catalogue import MODELS
from .initialise import initialise

__all__ = ["vgg11", "vgg11_st3", "vgg16", "vgg19"]


@MODELS.register("vgg11_st3")
def vgg11_st3(classes: int = 10, channels: int = 3) -> nn.Module:
    """Build the "VGG-11" of the authors' program: four convolutions and a classifier."""
    return VGG([[64], [128], [128, 128]], classes, channels)


@MODELS.register("vgg11")
def vgg11(classes: int = 10, channels: int = 3) -> nn.Module:
    """Build VGG-11: eight convolutions and a classifier."""
    return VGG([[64], [128], [256] * 2, [512] * 2, [512] * 2], classes, channels)


@MODELS.register("vgg16")
def vgg16(classes: int = 10, channels: int = 3) -> nn.Module:
    """Build VGG-16 with one classifier layer: 13 convolutions and a classifier."""
    return VGG([[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3], classes, channels)


@MODELS.register("vgg19")
def vgg19(classes: int = 10, channels: int = 3) -> nn.Module:
    """Build VGG-19 with one classifier layer: 16 convolutions and a classifier."""
    return VGG([[64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4], classes, channels)


class VGG(nn.Module):
    """3×3 convolutions of the given widths; max pooling halves the picture after each stage."""

    def __init__(self, stages: Sequence[Sequence[int]], classes: int, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for widths in stages:
            for width in widths:
                layers += [
                    nn.Conv2d(inputs, width, 3, padding=1, bias=False),
                    nn.BatchNorm2d(width),
                    nn.ReLU(),
                ]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(inputs, classes, bias=False)
        initialise(self)

    def forward(self, pictures: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.features(pictures).mean(dim=(2, 3)))
        return scores
