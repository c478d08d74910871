"""Small networks in the shape of well-known ones, written plainly, as users write them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Excitation(nn.Module):
    """Squeeze and excitation: channels are scaled by what their means say."""

    def __init__(self, channels: int, hidden: int, inner: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, channels, 1)
        self.inner, self.gate = inner, gate

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.adaptive_avg_pool2d(x, 1)
        return x * self.gate(self.up(self.inner(self.down(pooled))))


class InvertedBottleneck(nn.Module):
    """Wide 1×1 convolution, depthwise convolution, excitation, narrow 1×1 convolution, shortcut."""

    def __init__(
        self, channels: int, out: int, size: int, stride: int, act: Callable[[], nn.Module], gate
    ) -> None:
        super().__init__()
        wide = 3 * channels
        self.layers = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            act(),
            nn.Conv2d(wide, wide, size, stride, size // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            act(),
            Excitation(wide, channels, act(), gate()),
            nn.Conv2d(wide, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.has_shortcut = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.has_shortcut else self.layers(x)


def inverted(act: Callable[[], nn.Module], gate: Callable[[], nn.Module]) -> nn.Module:
    def stem(inputs: int, outputs: int, size: int, stride: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        return [conv, nn.BatchNorm2d(outputs), act()]

    return nn.Sequential(
        *stem(3, 8, 3, 2),
        InvertedBottleneck(8, 8, 3, 1, act, gate),
        InvertedBottleneck(8, 12, 5, 2, act, gate),
        InvertedBottleneck(12, 12, 5, 1, act, gate),
        *stem(12, 40, 1, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(40, 10),
    )


def efficientnet() -> nn.Module:
    return inverted(nn.SiLU, nn.Sigmoid)


def mobilenet_v3() -> nn.Module:
    return inverted(nn.Hardswish, nn.Hardsigmoid)


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of (n, c, h, w)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.rand(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 4, 4), ChannelNorm(8, eps=1e-6))
        self.first = nn.Sequential(ConvNeXtBlock(8), ConvNeXtBlock(8))
        self.down = nn.Sequential(ChannelNorm(8, eps=1e-6), nn.Conv2d(8, 16, 2, 2))
        self.second = ConvNeXtBlock(16)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.down(self.first(self.stem(x))))
        return self.head(self.norm(x.mean([-2, -1])))


class ShuffleUnit(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1),
            nn.BatchNorm2d(half),
            nn.ReLU(),
            nn.Conv2d(half, half, 3, padding=1, groups=half),
            nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, dim=1)
        x = torch.cat((kept, self.branch(changed)), dim=1)
        images, channels, high, wide = x.shape
        x = x.view(images, 2, channels // 2, high, wide).transpose(1, 2).contiguous()
        return x.view(images, channels, high, wide)


def shufflenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, 2, 1),
        nn.ReLU(),
        ShuffleUnit(12),
        ShuffleUnit(12),
        nn.Conv2d(12, 20, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(20, 10),
    )


class UNet(nn.Module):
    """Down, up by repeated pixels, joined with what was there before; group norms and leaky ReLUs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, 8), nn.GroupNorm(2, 16)])
        self.last = nn.Conv2d(24, 5, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        fine = F.leaky_relu(self.norms[0](self.first(x)), 0.1)
        coarse = F.elu(self.norms[1](self.second(fine)))
        return self.last(torch.cat([fine, F.interpolate(coarse, scale_factor=2, mode="nearest")], 1))


def audio() -> nn.Module:
    """One-dimensional convolutions."""
    return nn.Sequential(
        nn.Conv1d(2, 8, 5, 2, 2),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(8, 12, 3, padding="same"),
        nn.PReLU(12),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(12, 10),
    )


class SwiGLU(nn.Module):
    """Rows with RMS norms, a product of two branches, and slices of one layer's outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.scale = nn.RMSNorm(16), nn.Parameter(torch.rand(16))
        self.gate_up, self.down = nn.Linear(16, 48, bias=False), nn.Linear(24, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for norm in (self.norm, self.written_out):
            gate, up = self.gate_up(norm(x)).chunk(2, dim=-1)
            x = x + self.down(F.silu(gate) * up)
        return x

    def written_out(self, x: Tensor) -> Tensor:
        return self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
