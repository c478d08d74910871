"""A small GPT: it reads characters from left to right and scores the next one at every place (Radford et al., 2018).

Layer norms stand before attention and before the perceptron, as in GPT-2. Positions are learned. The classifier has
weights of its own: tied to the embedding, it could not be made sparse alone.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import MODELS

__all__ = ["gpt"]

SPREAD = 0.05  # standard deviation of the initial weights


@MODELS.register("gpt", shape=(64,), task="language")
def gpt(
    vocabulary: int = 256, context: int = 64, layers: int = 2, heads: int = 4, width: int = 64
) -> nn.Module:
    """Build a GPT of `layers` blocks of that `width`: 9 sparsifiable layers with 2 of them."""
    return GPT(vocabulary, context, layers, heads, width)


class GPT(nn.Module):
    def __init__(self, vocabulary: int, context: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} must be a multiple of the {heads} heads")
        self.context = context
        self.characters = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self._initialise(layers)

    def forward(self, characters: Tensor) -> Tensor:
        length = characters.shape[1]
        if length > self.context:
            raise ValueError(f"{length} characters do not fit in a context of {self.context}")
        x = self.characters(characters) + self.positions(torch.arange(length, device=characters.device))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores

    def _initialise(self, layers: int) -> None:
        """Draw small weights; those that add to the residual stream smaller still, the more of them there are."""
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                is_added = name.endswith(("project.weight", "narrow.weight"))
                nn.init.normal_(parameter, std=SPREAD / math.sqrt(2 * layers) if is_added else SPREAD)


class Block(nn.Module):
    """Attention to the characters before, then a perceptron; each adds to what it was given."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)  # queries, keys and values
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.project(self._attention(self.norm1(x)))
        y: Tensor = x + self.narrow(F.gelu(self.widen(self.norm2(x))))
        return y

    def _attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attend(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return seen.transpose(1, 2).reshape(batch, length, width)
