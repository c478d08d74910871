"""Well-known networks in their published shapes, with fresh weights."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from st3.models.initialise import initialise

CLASSES = 1000
TOKENS = 128
Activation = Callable[[], nn.Module]


def convolve(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a convolution and its batch norm."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class Excitation(nn.Module):
    """Squeeze and excitation: scales channels by a function of their means."""

    def __init__(self, channels: int, hidden: int, inner: Activation, gate: Activation) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, hidden, 1),
            inner(),
            nn.Conv2d(hidden, channels, 1),
            gate(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class InvertedBottleneck(nn.Module):
    """A 1x1 convolution that widens, a depthwise one, excitation, a 1x1 convolution that narrows, a shortcut."""

    def __init__(
        self,
        inputs: int,
        wide: int,
        outputs: int,
        size: int,
        stride: int,
        act: Activation,
        excite: list[nn.Module],
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *([*convolve(inputs, wide, 1), act()] if wide != inputs else []),
            *convolve(wide, wide, size, stride, groups=wide),
            act(),
            *excite,
            *convolve(wide, outputs, 1),
        )
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.has_shortcut else self.layers(x)  # type: ignore[no-any-return]


def efficientnet_b0() -> nn.Module:
    """EfficientNet-B0 (Tan & Le, ICML 2019, table 1): 5.3 million parameters."""
    layers = [*convolve(3, 32, 3, 2), nn.SiLU()]
    inputs = 32
    for widening, outputs, repeats, stride, size in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for number in range(repeats):
            wide = widening * inputs
            excite = Excitation(wide, inputs // 4, nn.SiLU, nn.Sigmoid)
            step = stride if number == 0 else 1
            layers.append(InvertedBottleneck(inputs, wide, outputs, size, step, nn.SiLU, [excite]))
            inputs = outputs
    layers += [*convolve(320, 1280, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return _fresh(nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(1280, CLASSES)))


def mobilenet_v3_large() -> nn.Module:
    """MobileNetV3-Large (Howard et al., ICCV 2019, table 1): 5.5 million parameters."""
    layers = [*convolve(3, 16, 3, 2), nn.Hardswish()]
    inputs = 16
    for size, wide, outputs, hidden, act, stride in (  # hidden: of the excitation
        (3, 16, 16, 0, nn.ReLU, 1),
        (3, 64, 24, 0, nn.ReLU, 2),
        (3, 72, 24, 0, nn.ReLU, 1),
        (5, 72, 40, 24, nn.ReLU, 2),
        (5, 120, 40, 32, nn.ReLU, 1),
        (5, 120, 40, 32, nn.ReLU, 1),
        (3, 240, 80, 0, nn.Hardswish, 2),
        (3, 200, 80, 0, nn.Hardswish, 1),
        (3, 184, 80, 0, nn.Hardswish, 1),
        (3, 184, 80, 0, nn.Hardswish, 1),
        (3, 480, 112, 120, nn.Hardswish, 1),
        (3, 672, 112, 168, nn.Hardswish, 1),
        (5, 672, 160, 168, nn.Hardswish, 2),
        (5, 960, 160, 240, nn.Hardswish, 1),
        (5, 960, 160, 240, nn.Hardswish, 1),
    ):
        excite: list[nn.Module] = [Excitation(wide, hidden, nn.ReLU, nn.Hardsigmoid)] if hidden else []
        layers.append(InvertedBottleneck(inputs, wide, outputs, size, stride, act, excite))
        inputs = outputs
    layers += [*convolve(160, 960, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    layers += [nn.Linear(960, 1280), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1280, CLASSES)]
    return _fresh(nn.Sequential(*layers))


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of (n, c, h, w)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A depthwise 7x7 convolution and a perceptron over channels, scaled, with a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        # Training starts with 1e-6, which would hide what a block computes.
        self.scale = nn.Parameter(torch.full((channels,), 0.2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


def convnext_tiny() -> nn.Module:
    """ConvNeXt-T (Liu et al., CVPR 2022): 28.6 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96, eps=1e-6)]
    for width, blocks in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if width > 96:
            layers += [ChannelNorm(width // 2, eps=1e-6), nn.Conv2d(width // 2, width, 2, 2)]
        layers += [ConvNeXtBlock(width) for _ in range(blocks)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768, eps=1e-6), nn.Linear(768, CLASSES)]
    return _fresh(nn.Sequential(*layers, *head))


class Bert(nn.Module):
    """BERT-base of Hugging Face: 12 layers of width 768, the states of all tokens."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.bert = BertModel(BertConfig(), add_pooling_layer=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.bert(ids).last_hidden_state  # type: ignore[no-any-return]


class GPT2(nn.Module):
    """GPT-2 small of Hugging Face: 12 layers of width 768, and the scores of the token that follows."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.gpt2 = GPT2LMHeadModel(GPT2Config(use_cache=False))

    def forward(self, ids: Tensor) -> Tensor:
        return self.gpt2(ids, logits_to_keep=1).logits  # type: ignore[no-any-return]


def picture() -> Tensor:
    return torch.randn(1, 3, 224, 224)


def tokens() -> Tensor:
    return torch.randint(0, 30522, (1, TOKENS))  # BERT's vocabulary, the smaller one


def _fresh(model: nn.Module) -> nn.Module:
    initialise(model)
    return model


PUBLISHED_NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "efficientnet_b0": (efficientnet_b0, picture),
    "mobilenet_v3_large": (mobilenet_v3_large, picture),
    "convnext_tiny": (convnext_tiny, picture),
    "bert_base": (Bert, tokens),
    "gpt2": (GPT2, tokens),
}
