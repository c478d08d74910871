"""A causal language model of transformers as a module that reads on from call to call, to be compiled by the engine."""

from typing import Any

import torch
from torch import Tensor, nn

try:
    from transformers import Cache, PreTrainedModel
except ImportError as missing:
    raise ImportError(
        "st3.integrations.huggingface_decoder needs transformers: pip install 'st3[huggingface]'"
    ) from missing

__all__ = ["Decoder"]

TRIED = 4  # tokens that a new decoder reads, to compare it with its model
TOLERANCE = 1e-3  # of the largest logit


class Decoder(nn.Module):
    """A model such as GPT-2 or Llama with the keys and values of up to `length` tokens in buffers.

        fast = st3.engine.compile(Decoder(model.eval(), 128), (torch.tensor([[first]]), torch.tensor([0])))

    A call gets the next token ids (1, n) and their positions (n,), and returns their logits (1, n, vocabulary). Another
    text begins at position 0 again. A new decoder reads a few tokens and compares its logits with the model's: a model
    that cannot be read this way is refused.
    """

    def __init__(self, model: PreTrainedModel, length: int) -> None:
        super().__init__()
        config = model.config.get_text_config()
        if faults := _faults(model, config, length):
            raise ValueError(f"{type(model).__name__} cannot be a Decoder: {'; '.join(faults)}")
        self.model, self.length = model, length
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        columns = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        for number in range(config.num_hidden_layers):
            for name in ("keys", "values"):
                empty = torch.zeros(1, heads, length, columns, dtype=model.dtype, device=model.device)
                self.register_buffer(f"{name}_{number}", empty, persistent=False)
        self.eval()
        self._compare(min(TRIED, length))

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        visible = torch.arange(self.length, device=positions.device) <= positions[:, None]
        logits: Tensor = self.model(
            input_ids=tokens,
            position_ids=positions[None],
            attention_mask=visible[None, None],
            past_key_values=_Buffers(self, positions),
            use_cache=True,
        ).logits
        return logits

    @torch.no_grad()
    def _compare(self, count: int) -> None:
        """Raise if one token at a time gives other logits than the model does for all of them."""
        positions = torch.arange(count, device=self.model.device)
        tokens = positions[None] % self.model.config.get_text_config().vocab_size
        wanted = self.model(input_ids=tokens, use_cache=False).logits
        found = torch.cat([self(tokens[:, n : n + 1], positions[n : n + 1]) for n in range(count)], dim=1)
        difference = float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30))
        if not difference <= max(TOLERANCE, 8 * torch.finfo(wanted.dtype).eps):
            raise ValueError(
                f"{type(self.model).__name__} cannot be a Decoder: token by token, its logits differ by "
                f"{difference:.2g} of the largest; it needs more than positions, a mask, keys and values"
            )
        for buffer in self.buffers(recurse=False):
            buffer.zero_()


class _Buffers(Cache):
    """The cache that the model sees: keys and values go to their positions in the decoder's buffers."""

    def __init__(self, decoder: Decoder, positions: Tensor) -> None:
        super().__init__(layers=[])
        self._decoder, self._positions = decoder, positions

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        keys = self._decoder.get_buffer(f"keys_{layer_idx}").index_copy_(2, self._positions, key_states)
        values = self._decoder.get_buffer(f"values_{layer_idx}").index_copy_(2, self._positions, value_states)
        return keys, values


def _faults(model: PreTrainedModel, config: Any, length: int) -> list[str]:
    """Return what is wrong with a model or a length, in a few words each."""
    faults = []
    most = getattr(config, "max_position_embeddings", None)
    if length < 1:
        faults.append(f"length must be at least 1, got {length}")
    if most is not None and length > most:
        faults.append(f"it has {most} positions only: length must be at most that, got {length}")
    if model.training:
        faults.append("it is in training mode: call model.eval() first")
    if (attention := config._attn_implementation) != "sdpa":
        faults.append(f"its attention is {attention!r}: call model.set_attn_implementation('sdpa')")
    if config.is_encoder_decoder:
        faults.append("it has an encoder; a decoder reads one text only")
    window = getattr(config, "sliding_window", None)
    if window is not None and length > window:
        faults.append(
            f"its attention sees {window} tokens at a time: length must be at most that, got {length}"
        )
    return faults
