"""Where torch is faster than the engine's program, the model runs in torch as it is, and the report says so."""

import pytest
import torch
from tests.engine.outputs import assert_close
from torch import nn

import st3
from st3.engine import compiled, native
from st3.engine.specialisation import OwnWay, Specialisation

pytestmark = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x, *, y):
        return {"sum": self.layer(x) + y, "input": x}


@pytest.fixture(params=[True, False], ids=["torch is faster", "the engine is faster"])
def is_own(request, monkeypatch):
    monkeypatch.setattr(compiled, "_race", lambda *calls: [2.0, 1.0] if request.param else [1.0, 2.0])
    return request.param


def test_the_faster_way_is_taken(is_own):
    model = Pair().eval()
    example = {"x": torch.randn(2, 6), "y": torch.randn(2, 4)}
    fast = st3.engine.compile(model, example)
    assert type(fast._last) is (OwnWay if is_own else Specialisation)
    answer = fast(**example)
    assert_close(answer, model(**example))
    assert answer["input"].data_ptr() != example["x"].data_ptr()
    assert not answer["sum"].requires_grad
    first = fast.report().splitlines()[0]
    assert first.endswith("in torch as it is: that was faster than the engine's program") == is_own


def test_without_measuring_the_engine_is_used(monkeypatch):
    monkeypatch.setattr(compiled, "_race", lambda *calls: pytest.fail("it was measured"))
    assert (
        type(st3.engine.compile(nn.Linear(6, 4).eval(), torch.randn(2, 6), tune=False)._last)
        is Specialisation
    )


def test_the_weights_are_those_of_the_moment_of_compiling(monkeypatch):
    monkeypatch.setattr(compiled, "_race", lambda *calls: [2.0, 1.0])
    model, x = nn.Linear(100, 100).eval(), torch.randn(1, 100)
    with torch.no_grad():
        model.weight.mul_(torch.rand_like(model.weight) < 0.1)  # kept as a list, then whole again
    fast, want = st3.engine.compile(model, x), model(x)
    with torch.no_grad():
        model.weight.zero_()
    assert torch.equal(fast(x), want.detach())


def test_a_race_is_won_by_the_shorter_time():
    import time

    slow, quick = compiled._race(lambda: time.sleep(0.05), lambda: time.sleep(0.001))
    assert slow > 5 * quick
