"""Models with unusual features, each with an input."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["ODD", "randomise", "zero_filters"]


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Randomise biases and batch norm statistics; return the model in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(0.3 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith("running_var"):
                buffer.mul_(0.5 + torch.rand(buffer.shape, generator=generator))
    return model.eval()


def zero_filters(weight: Tensor, *rows: int) -> None:
    """Set whole filters to zero."""
    with torch.no_grad():
        weight[list(rows)] = 0


class Convolutions(nn.Module):
    """Strides, dilations, groups, and paddings of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.same = nn.Conv2d(3, 8, (2, 5), padding="same")
        self.dilated = nn.Conv2d(8, 8, (4, 3), padding="same", dilation=(3, 2))
        self.grouped = nn.Conv2d(8, 12, 3, stride=(2, 1), padding=(1, 2), groups=4)
        self.valid = nn.Conv2d(12, 6, 2, padding="valid", bias=False)
        self.depthwise = nn.Conv2d(6, 12, 3, padding=1, groups=6)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(self.same(x), (0, 1, 2, 0))  # on one side only, as in other frameworks
        x = self.grouped(F.pad(self.dilated(x), (1, 2, 0, 1)))
        return self.depthwise(self.valid(x))


class PreActivated(nn.Module):
    """Norms before convolutions: one before a padded convolution, one that can be folded, one that is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(6) for _ in range(3))
        self.padded, self.plain = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 3, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = x + self.padded(self.norms[0](x))
        y = self.norms[1](x)
        return self.plain(self.norms[2](F.relu(y))) + y[:, :, 1:-1, 1:-1]


class Joined(nn.Module):
    """Branches concatenated along the channels, pooling of every kind, a module used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.pools = nn.ModuleList(
            [
                nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
                nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
                nn.AdaptiveAvgPool2d(5),
                nn.AdaptiveMaxPool2d((5, 1)),
            ]
        )
        self.head = nn.Linear(8 * 25 + 4 * 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        once = self.shared(x)
        twice = self.shared(once)
        small = torch.cat([self.pools[0](once), self.pools[1](twice)], dim=1)
        small, thin = self.pools[2](small), self.pools[3](twice)
        return torch.softmax(self.head(torch.cat([small.flatten(1), thin.view(len(x), -1)], 1)), dim=-1)


class SqueezeExcite(nn.Module):
    """A product of two values, which runs in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.down, self.up = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.conv(x))
        return x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))


class Attention(nn.Module):
    """A patch embedding and one block of a vision transformer."""

    def __init__(self, width: int = 24, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 5, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.out(mixed)
        return (x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))[:, 0]


class ManyAnswers(nn.Module):
    """Two inputs, in-place operations, and a dict with a tuple, a constant, an input and None as output."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 4, 3), nn.Linear(5, 4)
        self.register_buffer("fixed", torch.arange(3.0))

    def forward(self, picture: Tensor, row: Tensor) -> dict[str, Any]:
        x = self.conv(picture)
        doubled = x[:, 1]
        doubled.mul_(2)  # through a view: x changes
        row = self.fc(row)
        highest, where = x.flatten(1).max(dim=1)
        return {
            "pair": (F.relu_(x), row.tanh()),
            "fixed": self.fixed,
            "picture": picture,
            "nothing": None,
            "highest": highest,
            "where": where,
        }


class Arithmetic(nn.Module):
    """Arithmetic with constants per channel, which is an affine step, and with other constants."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1))
        self.conv, self.scale = nn.Conv2d(3, 4, 3, bias=False), nn.Parameter(torch.rand(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv((x - self.mean) / self.std)
        x = 2 * F.hardtanh(x * self.scale, 0.0, 6.0) + 1
        return x.clamp(min=0) - torch.arange(6.0) + torch.add(x, x, alpha=2)


class Scores(nn.Module):
    """A norm over features, products with a constant matrix, activations of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.stored = nn.Parameter(torch.randn(8, 8))
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.norm(self.first(x)))
        x = F.gelu(torch.addmm(self.bias, x, self.stored))
        x = F.dropout(F.relu6(x @ self.stored), 0.5, self.training)
        return F.hardsigmoid(x).sigmoid().tanh() + F.silu(x)


class Masked(nn.Module):
    """Intermediate values and outputs that are not float32: masks, indices, float64."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.conv(x)
        mask = x.double().abs() > 0.3
        y = self.fc(x.transpose(2, 3).masked_fill(mask, 0.5))
        y = y * torch.ops.aten._to_copy(y.argmax(-1, keepdim=True), dtype=torch.float32)
        return y.permute(0, 2, 3, 1), y.argmax(1), mask


def weight_normed() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 5, 3)), nn.Tanh())


def _picture(channels: int = 3, size: int = 8) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(2, channels, size, size),)


ODD: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "convolutions": (Convolutions, _picture(size=11)),
    "pre-activated": (PreActivated, _picture()),
    "joined": (Joined, _picture(channels=4, size=10)),
    "squeeze-excite": (SqueezeExcite, _picture()),
    "attention": (Attention, _picture()),
    "many answers": (ManyAnswers, lambda: (torch.randn(2, 2, 5, 5), torch.randn(3, 5))),
    "arithmetic": (Arithmetic, _picture()),
    "masked": (Masked, _picture()),
    "scores": (Scores, lambda: (torch.randn(5, 6),)),
    "weight-normed": (weight_normed, _picture()),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
        lambda: (torch.randn(2, 5, 16),),
    ),
    "recurrent": (lambda: nn.LSTM(4, 6, batch_first=True), lambda: (torch.randn(2, 5, 4),)),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(10, 6), nn.Flatten(), nn.Linear(18, 4)),
        lambda: (torch.randint(10, (2, 3)),),
    ),
}
