"""Language models of transformers with two small layers, and their decoders.

Not imported at the top of a test file: transformers takes seconds to import, and every process of the test run
collects all files.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from st3.integrations.huggingface_decoder import Decoder

__all__ = ["Decoder", "add_the_token_before", "gpt2", "llama", "mistral", "t5"]

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def prepare(make: Any, config: Any, scale: float) -> nn.Module:
    """Return a model in eval mode; its matrices are so many times as large as usual, so that its answers vary."""
    torch.manual_seed(0)
    model: nn.Module = make(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return model


def gpt2(scale: float = 1.0) -> nn.Module:
    sizes = {"vocab_size": 50, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return prepare(GPT2LMHeadModel, GPT2Config(**sizes, bos_token_id=0, eos_token_id=1), scale)


def llama(scale: float = 1.0) -> nn.Module:
    return prepare(LlamaForCausalLM, LlamaConfig(**SIZES), scale)


def mistral(window: int) -> nn.Module:
    return prepare(MistralForCausalLM, MistralConfig(**SIZES, sliding_window=window), 1.0)


def t5() -> nn.Module:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return prepare(T5ForConditionalGeneration, T5Config(vocab_size=50, **sizes), 1.0)


def add_the_token_before(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Mix every token with the one before it in the same call, as a convolution over tokens does."""
    x, *others = inputs
    return (x + x.roll(1, dims=1) * (torch.arange(x.shape[1]) > 0)[:, None], *others)
