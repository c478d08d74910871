"""A small network for the 8×8 digits: large enough to be made sparse, small enough to train in seconds."""

from torch import Tensor, nn

from .catalogue import MODELS
from .initialise import initialise

__all__ = ["digits_cnn"]


@MODELS.register("digits_cnn", shape=(1, 8, 8))
def digits_cnn(classes: int = 10, channels: int = 1) -> nn.Module:
    """Build three convolutions with batch norm and a classifier: 23,808 weights for grey pictures of 10 digits."""
    return DigitsCNN(classes, channels)


class DigitsCNN(nn.Module):
    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.conv3 = nn.Conv2d(32, 48, 3, stride=2, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(48)
        self.fc = nn.Linear(48, classes, bias=False)
        initialise(self)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.bn1(self.conv1(pictures)).relu()
        x = self.bn2(self.conv2(x)).relu()
        x = self.bn3(self.conv3(x)).relu()
        scores: Tensor = self.fc(x.mean(dim=(2, 3)))
        return scores
