"""ResNet-20 for 32×32 pictures (He et al., 2016): three stages of three basic blocks, 16/32/64 channels.

Where the width changes (twice), the shortcut is a 1×1 convolution with batch norm, as in the authors' program.
He et al. used a shortcut without parameters ("option A"), which `conv_shortcut=False` gives.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import MODELS
from .initialise import initialise

__all__ = ["resnet20"]


@MODELS.register("resnet20")
def resnet20(classes: int = 10, channels: int = 3, conv_shortcut: bool = True) -> nn.Module:
    """Build ResNet-20: 22 sparsifiable layers, or 20 with shortcuts that have no parameters."""
    return ResNet(classes, channels, conv_shortcut)


class ResNet(nn.Module):
    def __init__(self, classes: int, channels: int, conv_shortcut: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, 1, conv_shortcut)
        self.layer2 = _stage(16, 32, 2, conv_shortcut)
        self.layer3 = _stage(32, 64, 2, conv_shortcut)
        self.fc = nn.Linear(64, classes, bias=False)
        initialise(self)

    def forward(self, pictures: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(pictures)))
        x = self.layer3(self.layer2(self.layer1(x)))
        scores: Tensor = self.fc(x.mean(dim=(2, 3)))
        return scores


def _stage(inputs: int, width: int, stride: int, conv_shortcut: bool) -> nn.Sequential:
    first = BasicBlock(inputs, width, stride, conv_shortcut)
    return nn.Sequential(first, *(BasicBlock(width, width, 1, conv_shortcut) for _ in range(2)))


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, conv_shortcut: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = _shortcut(inputs, width, stride, conv_shortcut)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


def _shortcut(inputs: int, width: int, stride: int, conv_shortcut: bool) -> nn.Module:
    if inputs == width and stride == 1:
        return nn.Identity()
    if conv_shortcut:
        return nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))
    return PaddedShortcut(width - inputs, stride)


class PaddedShortcut(nn.Module):
    """Option A: take every `stride`-th pixel and add the missing channels as zeros, half before, half after."""

    def __init__(self, missing: int, stride: int) -> None:
        super().__init__()
        self.missing, self.stride = missing, stride

    def forward(self, x: Tensor) -> Tensor:
        before = self.missing // 2
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.missing - before))
