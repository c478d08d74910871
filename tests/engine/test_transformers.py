"""Transformers of Hugging Face: their linear layers run in the engine, the rest in torch."""

import pytest
import torch
from tests.engine.outputs import assert_close

import st3
from st3.engine.program import InTorch, Linear

SMALL = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def bert():
    from transformers import BertConfig, BertModel

    inputs = {
        "input_ids": torch.randint(0, 100, (2, 9)),
        "attention_mask": torch.ones(2, 9, dtype=torch.long),
    }
    inputs["attention_mask"][1, 6:] = 0
    return BertModel(BertConfig(**SMALL, intermediate_size=64)), inputs, 13


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=100, n_embd=32, n_layer=2, n_head=2, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config), {"input_ids": torch.randint(0, 100, (2, 9))}, 9


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    return ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32)}, 13


@pytest.mark.slow
@pytest.mark.parametrize("make", [bert, gpt2, vit])
def test_a_hugging_face_transformer_computes_the_same(make):
    torch.manual_seed(0)
    model, inputs, linears = make()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(10 * (torch.rand_like(parameter) < 0.3))
    model.eval()
    fast = st3.engine.compile(model, inputs)
    for _ in range(2):
        with torch.no_grad():
            assert_close(fast(**inputs), model(**inputs))
    program = fast.program
    assert sum(isinstance(step, Linear) for step in program) == linears
    in_torch = {name for step in program if isinstance(step, InTorch) for name in step.function.operators}
    assert in_torch.isdisjoint({"linear", "addmm", "conv2d"})
