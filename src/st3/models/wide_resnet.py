"""Wide ResNet for 32×32 pictures (Zagoruyko & Komodakis, 2016), as in the authors' program.

Norm and ReLU come before each convolution, so that no norm follows the second convolution or the shortcut of a block.
The shortcut takes the input before norm and ReLU.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import MODELS
from .initialise import initialise

__all__ = ["wide_resnet", "wrn34x2"]


@MODELS.register("wrn34x2")
def wrn34x2(classes: int = 100, channels: int = 3, dropout: float = 0.2) -> nn.Module:
    """Build the paper's WRN-34×2 for CIFAR-100: 35 sparsifiable layers."""
    return wide_resnet(34, 2, classes, channels, dropout)


def wide_resnet(depth: int, width: int, classes: int, channels: int = 3, dropout: float = 0.0) -> nn.Module:
    """Build WRN-`depth`×`width`: three stages of (`depth` − 4) / 6 blocks, 16/32/64 times `width` channels."""
    blocks, rest = divmod(depth - 4, 6)
    if rest or blocks < 1:
        raise ValueError(f"a wide ResNet has a depth of 6n + 4 (10, 16, 22, 28, 34, ...), got {depth}")
    return WideResNet(blocks, width, classes, channels, dropout)


class WideResNet(nn.Module):
    def __init__(self, blocks: int, width: int, classes: int, channels: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.layer1 = _stage(16, 16 * width, 1, blocks, dropout)
        self.layer2 = _stage(16 * width, 32 * width, 2, blocks, dropout)
        self.layer3 = _stage(32 * width, 64 * width, 2, blocks, dropout)
        self.bn = nn.BatchNorm2d(64 * width)
        self.fc = nn.Linear(64 * width, classes, bias=False)
        initialise(self)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.conv1(pictures))))
        scores: Tensor = self.fc(F.relu(self.bn(x)).mean(dim=(2, 3)))
        return scores


def _stage(inputs: int, width: int, stride: int, blocks: int, dropout: float) -> nn.Sequential:
    first = PreActivationBlock(inputs, width, stride, dropout)
    return nn.Sequential(first, *(PreActivationBlock(width, width, 1, dropout) for _ in range(blocks - 1)))


class PreActivationBlock(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.dropout = nn.Dropout2d(dropout)  # whole channels
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        same = inputs == width and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(F.relu(self.bn1(x)))
        out = self.conv2(self.dropout(F.relu(self.bn2(out))))
        total: Tensor = out + self.shortcut(x)
        return total
