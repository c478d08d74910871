"""Networks of many families run in the engine as a whole, or with attention alone in torch."""

import pytest
import torch
from tests.engine import small_networks
from tests.engine.odd_models import randomise
from tests.engine.outputs import assert_close
from torch import nn

import st3
from st3.engine import native
from st3.engine.plan.assemble import Operation
from st3.engine.plan.lower import lower
from st3.engine.plan.planner import Planner

pytestmark = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")

NETWORKS = {
    "efficientnet": (small_networks.efficientnet, (3, 32, 32)),
    "mobilenet_v3": (small_networks.mobilenet_v3, (3, 30, 33)),
    "convnext": (small_networks.ConvNeXt, (3, 32, 40)),
    "shufflenet": (small_networks.shufflenet, (3, 17, 15)),
    "unet": (small_networks.UNet, (3, 16, 24)),
    "audio": (small_networks.audio, (2, 64)),
    "swiglu": (small_networks.SwiGLU, (9, 16)),
    "swiglu of one token": (small_networks.SwiGLU, (1, 16)),
}


def in_torch(fast) -> list[Operation]:
    """Return the operations that torch computes."""
    program = fast.program
    planner = Planner(program, native.kernels(), threads=1)
    for step in program:
        lower(step, planner)
    return [operation for operation in planner.operations if operation.torch is not None]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("batch", [1, 5])
def test_a_network_runs_without_torch(name, batch):
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    model = randomise(make())
    x = torch.randn(batch, *shape)
    fast = st3.engine.compile(model, x, tune=False)
    assert in_torch(fast) == []
    for _ in range(2):
        with torch.no_grad():
            assert_close(fast(x), model(x), 1e-5)


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    sizes = {"vocab_size": 50, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    return BertModel(BertConfig(num_hidden_layers=2, **sizes))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=2, use_cache=False, **ends))


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 50, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, use_cache=False, **sizes))


# Positions and masks; Llama turns the queries and keys of each of its two layers by their positions.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "tokens", "most"),
    [(bert, 9, 3), (bert, 1, 3), (gpt2, 9, 1), (gpt2, 1, 1), (llama, 9, 4), (llama, 1, 12)],
)
def test_a_transformer_leaves_few_steps_to_torch(make, tokens, most):
    torch.manual_seed(0)
    model = make().eval()
    ids = torch.randint(0, 50, (1, tokens))
    fast = st3.engine.compile(model, {"input_ids": ids}, tune=False)
    assert len(in_torch(fast)) <= most
    with torch.no_grad():
        assert_close(fast(input_ids=ids), model(input_ids=ids), 1e-5)
