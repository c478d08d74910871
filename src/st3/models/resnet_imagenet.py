"""ResNet-50 v1.5 for 224×224 pictures (He et al., 2016): the stride of a stage is in the 3×3 convolution.

The last batch norm of a block starts at 1, not at 0. Modules have the names that most checkpoints use.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import MODELS
from .initialise import initialise

__all__ = ["resnet50"]


@MODELS.register("resnet50", shape=(3, 224, 224))
def resnet50(classes: int = 1000, channels: int = 3) -> nn.Module:
    """Build ResNet-50 v1.5: 54 sparsifiable layers."""
    return ResNet(classes, channels)


class ResNet(nn.Module):
    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, 1, blocks=3)
        self.layer2 = _stage(256, 128, 2, blocks=4)
        self.layer3 = _stage(512, 256, 2, blocks=6)
        self.layer4 = _stage(1024, 512, 2, blocks=3)
        self.fc = nn.Linear(2048, classes, bias=False)
        initialise(self)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(pictures)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: Tensor = self.fc(x.mean(dim=(2, 3)))
        return scores


def _stage(inputs: int, width: int, stride: int, blocks: int) -> nn.Sequential:
    first = Bottleneck(inputs, width, stride)
    return nn.Sequential(first, *(Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)))


class Bottleneck(nn.Module):
    """A 1×1 convolution down to `width` channels, a 3×3 one, and a 1×1 one up to four times `width`."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = F.relu(self.bn2(self.conv2(out)), inplace=True)
        return F.relu(self.bn3(self.conv3(out)) + self.downsample(x), inplace=True)
