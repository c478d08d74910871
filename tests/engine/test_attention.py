"""Attention, embeddings and rows put into a state, by kernels."""

import numpy as np
import pytest
import torch
from tests.engine import plan_corpus
from tests.engine.outputs import assert_close
from torch import Tensor, nn
from torch.nn import functional as F

import st3
from st3.engine import native
from st3.engine.program import Attention, InTorch, Lookup
from st3.engine.reference import interpret
from st3.engine.run import Runtime


@pytest.mark.parametrize("isa", native.usable_instruction_sets())
@pytest.mark.parametrize("seed", range(30))
def test_every_instruction_set_computes_what_the_reference_does(isa, seed):
    random = np.random.default_rng(seed)
    program = plan_corpus._decoder(random)
    torch.manual_seed(seed)
    rows, state = program.shapes["x"][0] // 2, torch.randn(program.shapes["keys"])
    numbers = torch.randperm(program.shapes["keys"][2])[:rows]
    bits = numbers.view(torch.float32)
    expected = interpret(program, bits, state)
    runtime = Runtime(program, threads=1 + seed % 2, tune=False, isa=isa, states=[state])
    (got,) = runtime.run(bits)
    assert_close(got, expected[0])
    assert_close(state, expected[1])
    assert runtime.planned.is_whole


class Heads(nn.Module):
    """Attention whose queries, keys and values are views of one linear layer; the mask is computed from an input."""

    def __init__(self, heads: int, keys: int, width: int, way: str) -> None:
        super().__init__()
        self.heads, self.keys, self.width, self.way = heads, keys, width, way
        self.linear = nn.Linear(16, (heads + 2 * keys) * width)
        self.out = nn.Linear(heads * width, 8)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        batch, rows, _ = x.shape
        parts = self.linear(x).view(batch, rows, -1, self.width).transpose(1, 2)
        q, k, v = parts.split([self.heads, self.keys, self.keys], 1)
        if self.keys != self.heads:
            repeat = self.heads // self.keys
            k, v = (each[:, :, None].expand(-1, -1, repeat, -1, -1).flatten(1, 2) for each in (k, v))
        mask = self.mask(torch.arange(rows), lengths[:, None])
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.way == "causal")
        return self.out(y.transpose(1, 2).flatten(2))

    def mask(self, places: Tensor, lengths: Tensor) -> Tensor | None:
        match self.way:
            case "bool":
                return (places < lengths)[:, None, None]
            case "float":
                return (places * -0.1 * lengths)[:, None, None].expand(-1, 1, len(places), -1)
            case "triangle":
                return places <= places[:, None]
            case "all":
                return torch.ones(len(places), len(places), dtype=torch.bool)
            case "until":
                return places <= lengths  # one number per row, for all images
        return None


@pytest.mark.parametrize("way", ["none", "causal", "triangle", "all", "bool", "float", "until"])
@pytest.mark.parametrize(
    ("batch", "rows", "heads", "keys", "width"),
    [(1, 1, 2, 2, 8), (2, 3, 4, 2, 5), (2, 7, 4, 1, 24), (1, 37, 2, 2, 64), (1, 100, 1, 1, 17)],
)
def test_the_forms_in_which_models_write_attention(way, batch, rows, heads, keys, width):
    torch.manual_seed(0)
    model = Heads(heads, keys, width, way).eval()
    lengths = torch.randint(1, rows + 1, (rows if way == "until" else batch,))
    x = torch.randn(batch, rows, 16)
    fast = st3.engine.compile(model, (x, lengths), threads=1, tune=False)
    with torch.no_grad():
        assert_close(fast(x, lengths), model(x, lengths))
    assert [type(step) for step in fast.program].count(Attention) == 1


class Written(nn.Module):
    """Attention whose mask or heads look like a usual form, and are not."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: Tensor, numbers: Tensor) -> Tensor:
        places = torch.arange(4)
        match self.way:
            case "a number per image":
                mask = places <= numbers[:, None, None, None]
            case "transposed":
                mask = (places <= numbers[:, None]).t()
            case "one number":
                mask = (places <= numbers[0])[None]
            case "a constant row":
                mask = torch.tensor([[True, False, False, False]])
            case _:
                return F.scaled_dot_product_attention(x[:, :1], x, x)
        return F.scaled_dot_product_attention(x, x, x, mask)


@pytest.mark.parametrize(
    "way", ["a number per image", "transposed", "one number", "a constant row", "one head for many keys"]
)
def test_forms_that_look_like_others(way):
    torch.manual_seed(0)
    model, x, numbers = Written(way).eval(), torch.randn(4, 2, 4, 8), torch.tensor([3, 0, 2, 1])
    fast = st3.engine.compile(model, (x, numbers), threads=1, tune=False)
    assert_close(fast(x, numbers), model(x, numbers))


def test_a_batch_with_attention_is_not_computed_in_parts():
    class Pictures(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 16, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            rows = x.view(len(x), 1, 16, -1)
            return F.scaled_dot_product_attention(rows, rows, rows).view(x.shape)

    model, x = Pictures().eval(), torch.randn(64, 3, 32, 32)
    fast = st3.engine.compile(model, x, threads=1, tune=False)
    planned = fast._last.runner.planned
    assert planned.plan.parts == 1
    assert plan_corpus.verify(planned) == ""
    with torch.no_grad():
        assert_close(fast(x), model(x))


def test_a_row_that_sees_nothing_is_zero():
    class Masked(nn.Module):
        def forward(self, q: Tensor, mask: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, q, q, mask).transpose(1, 2)

    q, mask = torch.randn(1, 1, 2, 4), torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf]])
    found = st3.engine.compile(Masked().eval(), (q, mask), threads=1, tune=False)(q, mask)
    assert torch.equal(found[0, 0, 0], q[0, 0, 0])
    assert not found[0, 1].any()


def test_embeddings_of_other_integers_and_of_computed_ones():
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 6, padding_idx=0)

        def forward(self, ids: Tensor) -> Tensor:
            return self.words(ids) + self.words(ids.flip(-1) % 10)

    model = Words().eval()
    for dtype in (torch.int32, torch.int64):
        ids = torch.randint(0, 10, (2, 5), dtype=dtype)
        fast = st3.engine.compile(model, ids, tune=False)
        with torch.no_grad():
            assert_close(fast(ids), model(ids))
        program = fast.program
        assert sum(isinstance(step, Lookup) for step in program) == 2
        assert any(isinstance(step, InTorch) for step in program)
