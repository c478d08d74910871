"""What torch.export cannot capture is refused in a sentence that says what to do."""

import pytest
import torch
from tests.engine.outputs import assert_close
from torch import Tensor, nn

import st3
from st3.engine.frontend.capture import _trace


class Chosen(nn.Module):
    """Multiplies by the number of the largest entry, which is computed with integers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        return h * torch.ops.aten._to_copy(h.argmax(-1, keepdim=True), dtype=torch.float32)


@pytest.mark.parametrize("rows", [2, 9])
def test_an_index_may_be_a_factor(rows):
    torch.manual_seed(0)
    model, x = Chosen().eval(), torch.randn(rows, 4)
    with torch.no_grad():
        assert_close(st3.engine.compile(model, x, tune=False)(x), model(x), 1e-6)


class Positive(nn.Module):
    """Keeps the rows that start with a positive number, in as many operators as asked."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        x = x[x[:, 0] > 0]
        if self.steps > 1:
            x = x.view(-1, 2, 2)
        if self.steps > 2:
            x = x * x.sum(1, keepdim=True)
        return x.relu()


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_shape_that_depends_on_numbers_is_refused_in_one_sentence(steps):
    with pytest.raises(ValueError, match="depends on the numbers that the model computes") as refused:
        st3.engine.compile(Positive(steps).eval(), torch.randn(6, 4))
    assert "\n" not in str(refused.value)


class Edges(nn.Module):
    """A graph network that reads the number of nodes from its edges."""

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        nodes = int(edges.max()) + 1
        return torch.zeros(nodes, x.shape[1]).index_add(0, edges[1], x[edges[0]])


def test_a_number_read_from_a_tensor_is_refused_in_one_sentence():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    with pytest.raises(ValueError, match="Edges cannot be captured as a graph") as refused:
        st3.engine.compile(Edges().eval(), (torch.randn(3, 4), edges))
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_model_that_returns_a_cache_is_told_about_use_cache():
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=1, n_head=2, **ends)).eval()
    with pytest.raises(ValueError, match=r"returns a DynamicCache, .* set use_cache=False in its config"):
        st3.engine.compile(model, {"input_ids": torch.randint(0, 50, (1, 5))})


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_a_symbolic_trace_that_would_lose_a_change_of_buffers_is_refused():
    model = Counting().eval()
    with pytest.raises(ValueError, match="tracing changes the model's buffers"):
        _trace(model)
    assert model.calls == 0
