"""Networks that only the benchmarks need."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)
    )


class Block(nn.Module):
    """A pre-norm transformer block; causal as in GPT-2, or not, as in BERT and ViT."""

    def __init__(self, width: int, heads: int, is_causal: bool = True) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT2Shaped(nn.Module):
    """A transformer with the shapes of GPT-2 small: 12 blocks of width 768, 50,257 tokens, tied head."""

    def __init__(self, blocks: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 50257) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))  # type: ignore[no-any-return]
