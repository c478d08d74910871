"""MobileNetV1 for 224×224 pictures (Howard et al., 2017) at width 1: 13 depthwise-separable blocks."""

from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import MODELS
from .initialise import initialise

__all__ = ["mobilenet_v1"]

# (output channels, stride) of each block
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


@MODELS.register("mobilenet_v1", shape=(3, 224, 224))
def mobilenet_v1(classes: int = 1000, channels: int = 3) -> nn.Module:
    """Build MobileNetV1: 28 sparsifiable layers, 13 of them depthwise."""
    return MobileNet(classes, channels)


class MobileNet(nn.Module):
    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        inputs = [32, *(width for width, _ in BLOCKS)]
        self.blocks = nn.Sequential(*(Separable(i, *block) for i, block in zip(inputs, BLOCKS, strict=False)))
        self.fc = nn.Linear(inputs[-1], classes, bias=False)
        initialise(self)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.bn1(self.conv1(pictures)), inplace=True))
        scores: Tensor = self.fc(x.mean(dim=(2, 3)))
        return scores


class Separable(nn.Module):
    """A 3×3 convolution of each channel by itself, then a 1×1 convolution that mixes the channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, 3, stride, padding=1, groups=inputs, bias=False)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.depthwise(x)), inplace=True)
        return F.relu(self.bn2(self.pointwise(x)), inplace=True)
