"""A small GPT: it reads characters from left to right and scores the next one at every place (Radford et al., 2018).

Layer norms stand before attention and before the perceptron, as in GPT-2. Positions are learned. The classifier has
weights of its own: tied to the embedding, it could not be made sparse alone. To write text, `decoder` reads a few
characters at a time and keeps the keys and values of those before.
"""

import math
from dataclasses import dataclass

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
        self.context, self.heads = context, heads
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
        return self.score(characters, torch.arange(length, device=characters.device), None)

    def score(self, characters: Tensor, positions: Tensor, caches: "list[Cache] | None") -> Tensor:
        """Return the scores of the characters after these, which stand at these positions."""
        x = self.characters(characters) + self.positions(positions)
        for number, block in enumerate(self.blocks):
            x = block(x, caches[number] if caches else None)
        scores: Tensor = self.head(self.norm(x))
        return scores

    def decoder(self) -> "Decoder":
        """Return the model as a network that reads on from call to call."""
        return Decoder(self)

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

    def forward(self, x: Tensor, cache: "Cache | None" = None) -> Tensor:
        x = x + self.project(self._attention(self.norm1(x), cache))
        y: Tensor = x + self.narrow(F.gelu(self.widen(self.norm2(x))))
        return y

    def _attention(self, x: Tensor, cache: "Cache | None") -> Tensor:
        batch, length, width = x.shape
        parts = self.attend(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if cache is None:
            seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            seen = F.scaled_dot_product_attention(query, *cache.add(key, value), attn_mask=cache.visible)
        return seen.transpose(1, 2).reshape(batch, length, width)


@dataclass
class Cache:
    """The keys and values of all characters read so far, of one block: (1, heads, context, columns)."""

    keys: Tensor
    values: Tensor
    positions: Tensor  # of the characters that are read now
    visible: Tensor  # which places of the context they may look at

    def add(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put those of the characters that are read now in their places, and return all."""
        return self.keys.index_copy_(2, self.positions, key), self.values.index_copy_(
            2, self.positions, value
        )


class Decoder(nn.Module):
    """A GPT that reads on: a call gets the next characters (1, n) and their positions (n,), and returns their scores.

    It keeps keys and values of what it has read in buffers, so that one more character costs one row of every layer.
    """

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model
        width, heads = model.characters.embedding_dim, model.heads
        for number in range(len(model.blocks)):
            for name in ("keys", "values"):
                empty = model.head.weight.new_zeros(1, heads, model.context, width // heads)
                self.register_buffer(f"{name}_{number}", empty, persistent=False)

    def forward(self, characters: Tensor, positions: Tensor) -> Tensor:
        visible = torch.arange(self.model.context, device=positions.device) <= positions[:, None]
        caches = [
            Cache(getattr(self, f"keys_{number}"), getattr(self, f"values_{number}"), positions, visible)
            for number in range(len(self.model.blocks))
        ]
        return self.model.score(characters, positions, caches)
