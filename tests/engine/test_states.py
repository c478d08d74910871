"""Models that change buffers of their own: a compiled model keeps a copy of them from call to call."""

import itertools
import threading
import warnings

import pytest
import torch
from tests.engine.outputs import assert_close
from torch import Tensor, nn

import st3
from st3.engine.program import Place
from st3.engine.run import TorchRuntime
from st3.models.gpt import GPT, Decoder

TOKEN, PLACE = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.full((), 7, dtype=torch.int64))
        self.register_buffer("sum", torch.zeros(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.sum.copy_(self.sum + torch.relu(x))
        return self.sum * self.calls


def test_calls_change_the_copy_and_leave_the_model_alone():
    model = Counting().eval()
    fast = st3.engine.compile(model, torch.zeros(2, 3))
    assert {name: each.tolist() for name, each in fast.state.items()} == {"calls": 7, "sum": [[0.0] * 3] * 2}
    x = torch.tensor([[1.0, -1.0, 2.0]] * 2)
    assert fast(x).tolist() == [[8.0, 0.0, 16.0]] * 2
    assert fast(x).tolist() == [[18.0, 0.0, 36.0]] * 2
    assert (int(model.calls), int(fast.state["calls"])) == (7, 9)
    fast.state["calls"].fill_(1)  # the tensor itself
    assert fast(x).tolist() == [[6.0, 0.0, 12.0]] * 2
    fast.reset()
    assert fast(x).tolist() == [[8.0, 0.0, 16.0]] * 2


def test_an_input_that_the_model_refuses_does_not_change_what_reset_brings_back():
    fast = st3.engine.compile(Counting().eval(), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="Counting itself fails on an input of 3x3"):
        fast(torch.zeros(3, 3))
    fast.reset()
    assert int(fast.state["calls"]) == 7


class Exchanging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(1, 4))
        self.register_buffer("b", torch.ones(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.a.clone(), self.b.clone()
        self.a.copy_(b)
        self.b.copy_(a)
        return x + a


def test_states_may_become_each_other():
    fast = st3.engine.compile(Exchanging().eval(), torch.zeros(1, 4))
    assert [float(fast(torch.zeros(1, 4)).sum()) for _ in range(4)] == [0.0, 4.0, 0.0, 4.0]


class Late(nn.Module):
    """Reads its state after it has put rows into it, and what it was before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(6, 4))

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        before = self.rows.clone()
        self.rows[places] = x
        return self.rows - 2 * before


def test_a_state_whose_old_contents_are_read_too():
    torch.manual_seed(0)
    model = Late().eval()
    x, places = torch.randn(2, 4), torch.tensor([4, 1])
    fast = st3.engine.compile(model, (x, places))
    for _ in range(3):
        x, places = torch.randn(2, 4), torch.randperm(6)[:2]
        assert_close(fast(x, places), model(x, places))


class Cached(nn.Module):
    """Puts a row into a cache; `way` says what else it does with the cache's old contents."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.register_buffer("cache", torch.arange(24.0).view(6, 4))
        self.register_buffer("before", torch.zeros(6, 4))

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        if self.way == "copied":
            self.before.copy_(self.cache)
        old = self.cache.clone()
        if self.way == "moved":
            x = self.cache[1:3].clone()
        if self.way == "negative":
            self.cache[places - 6] = x
        else:
            self.cache.index_copy_(0, places, x)
        return old if self.way == "returned" else self.cache * 2


@pytest.mark.parametrize("way", ["returned", "copied", "moved", "negative"])
def test_rows_in_place_do_not_change_what_is_read_of_before(way):
    torch.manual_seed(0)
    model = Cached(way).eval()
    fast = st3.engine.compile(model, (torch.randn(2, 4), torch.tensor([0, 1])), tune=False)
    for _ in range(3):
        x, places = torch.randn(2, 4), torch.randperm(6)[:2]
        assert_close(fast(x, places), model(x, places))
        for name, state in fast.state.items():
            assert torch.equal(state, getattr(model, name))


class Sometimes(nn.Module):
    """Changes its buffers for one row only; the count is also the number of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 4)
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int32))
        self.register_buffer("sum", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 1:
            self.calls.add_(1)
            self.sum.add_(x[0])
        return x + self.sum + self.words(self.calls)


@torch.no_grad()
def test_a_shape_that_only_reads_a_state_sees_what_others_have_written():
    torch.manual_seed(0)
    model = Sometimes().eval()
    for first in (1, 2):
        model.calls.zero_()
        model.sum.zero_()
        fast = st3.engine.compile(model, torch.randn(first, 4), tune=False)
        for rows in (1, 2, 1, 2, 2):
            x = torch.randn(rows, 4)
            assert_close(fast(x), model(x))


# ---------------------------------------------------------------- text


def small_gpt(**sizes) -> GPT:
    torch.manual_seed(0)
    model = GPT(**({"vocabulary": 30, "context": 24, "layers": 2, "heads": 2, "width": 32} | sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4 * (torch.rand_like(parameter) < 0.4))
    return model


def read(fast, text: Tensor, sizes: list[int]) -> Tensor:
    """Return the scores of a text that is read in parts."""
    edges = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    spans = itertools.pairwise(edges)
    return torch.cat([fast(text[:, a:b], torch.arange(a, b)) for a, b in spans], 1)


@pytest.mark.parametrize(
    ("sizes", "threads"), [([1] * 24, 1), ([5, 1, 1, 16, 1], 2)], ids=["one by one", "in parts"]
)
def test_a_decoder_scores_every_token_as_the_whole_model_does(sizes, threads):
    model = small_gpt()
    fast = st3.engine.compile(model.decoder().eval(), (TOKEN, PLACE), threads=threads, tune=False)
    text = torch.randint(0, 30, (1, 24))
    with torch.no_grad():
        expected = model(text)
    for _ in range(2):
        assert_close(read(fast, text, sizes), expected)
        fast.reset()
        assert not fast.state["keys_0"].any()
    assert "torch" not in {choice.kernel for choice in fast._last.runner.choices()}
    assert sum(isinstance(step, Place) for step in fast.program) == 4


def test_numbers_out_of_range_are_refused_and_change_nothing():
    fast = st3.engine.compile(small_gpt().decoder().eval(), (TOKEN, PLACE), tune=False)
    fast(TOKEN + 3, PLACE)
    before = {name: each.clone() for name, each in fast.state.items()}
    for token, place in ((30, 1), (-1, 1), (0, 24), (0, -1)):
        with pytest.raises(IndexError, match="out of range: token ids must be at least 0"):
            fast(TOKEN + token, PLACE + place)
    assert all(torch.equal(before[name], each) for name, each in fast.state.items())


def test_calls_of_several_threads_take_turns():
    model = Counting().eval()
    fast = st3.engine.compile(model, torch.zeros(2, 3), threads=1)

    def call() -> None:
        for _ in range(50):
            fast(torch.ones(2, 3))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(fast.state["calls"]) == 207
    assert fast.state["sum"].tolist() == [[200.0] * 3] * 2


def test_without_kernels_torch_keeps_the_states_too(monkeypatch):
    monkeypatch.setenv("ST3_KERNELS", "/nowhere")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = st3.engine.compile(small_gpt().decoder().eval(), (TOKEN, PLACE))
    assert isinstance(fast._last.runner, TorchRuntime)
    text = torch.randint(0, 30, (1, 24))
    with torch.no_grad():
        assert_close(read(fast, text, [1] * 24), small_gpt()(text))


def test_torch_compile_changes_the_models_own_buffers():
    model = Counting().eval()
    quick = torch.compile(model, backend="st3", options={"threads": 1, "tune": False})
    x = torch.ones(2, 3)
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always")
        assert quick(x).tolist() == [[8.0] * 3] * 2
        assert quick(x).tolist() == [[18.0] * 3] * 2
    assert int(model.calls) == 9
    assert all(
        "runs a graph in plain torch" in str(each.message) for each in said if "st3" in str(each.message)
    )


# ---------------------------------------------------------------- files


def test_a_file_keeps_states_and_takes_numbers(tmp_path):
    model = small_gpt()
    decoder: Decoder = model.decoder().eval()
    decoder.keys_1.fill_(0.5)  # contents at the start that are not zero
    path = st3.engine.compile(decoder, (TOKEN, PLACE), threads=1).save(tmp_path / "gpt.st3run")
    loaded = st3.engine.load(path)
    assert [(each.name, each.shape, each.dtype) for each in loaded.inputs] == [
        ("characters", (1, 1), torch.int64),
        ("positions", (1,), torch.int64),
    ]
    text = torch.randint(0, 30, (1, 24))
    with torch.no_grad():
        expected = model(text)
    for _ in range(2):
        assert_close(read(loaded, text, [1] * 24), expected)
        assert not (loaded.state["keys_1"] == 0.5).any()
        loaded.reset()
        assert (loaded.state["keys_1"] == 0.5).all()
    with pytest.raises(IndexError, match="out of range"):
        loaded(TOKEN + 30, PLACE)
    with pytest.raises(ValueError, match=r"torch\.float32; the model was compiled for torch\.int64"):
        loaded(TOKEN.float(), PLACE)


def test_a_state_of_another_type_cannot_be_saved(tmp_path):
    class Flag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4, dtype=torch.bool))

        def forward(self, x: Tensor) -> Tensor:
            self.seen |= x[0] > 0
            return x * self.seen

    fast = st3.engine.compile(Flag().eval(), torch.ones(1, 4))
    assert fast(torch.tensor([[1.0, -1.0, 2.0, 0.0]])).tolist() == [[1.0, 0.0, 2.0, 0.0]]
    assert fast(torch.tensor([[1.0, 1.0, 2.0, 0.0]])).tolist() == [[1.0, 1.0, 2.0, 0.0]]
    with pytest.raises(
        ValueError, match=r"its buffer 'seen', which calls change, is torch\.bool; a file holds float32"
    ):
        fast.save(tmp_path / "flag.st3run")
