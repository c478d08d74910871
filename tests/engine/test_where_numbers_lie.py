"""Kernels write to addresses: what they get is float32 in memory, or the call is refused."""

import time

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import st3
from st3.engine import native
from st3.engine.batches import BatchedExecution

pytestmark = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3)).eval()


PICTURES = {"in one piece": torch.randn(1, 3, 20, 20), "in parts": torch.randn(8, 3, 150, 150)}


@pytest.fixture(params=PICTURES)
def pictures(request):
    return PICTURES[request.param]


@pytest.fixture
def default_dtype():
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("default_dtype")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_default_type_of_torch_does_not_matter(pictures, dtype):
    fast = st3.engine.compile(net(), pictures, threads=2, tune=False)
    want = fast(pictures)
    torch.set_default_dtype(dtype)
    assert torch.equal(fast(pictures), want)


@pytest.mark.usefixtures("default_dtype")
def test_the_default_type_of_torch_does_not_matter_while_kernels_are_measured():
    model, x = net(), PICTURES["in one piece"]
    want = st3.engine.compile(model, x, tune=False)(x)
    torch.set_default_dtype(torch.float64)
    fast = st3.engine.compile(model, x)  # dense: the whole network is measured, too
    torch.testing.assert_close(fast(x), want, rtol=1e-4, atol=1e-5)
    assert "Conv" in fast.report()


def test_the_default_device_of_torch_does_not_matter(pictures):
    fast = st3.engine.compile(net(), pictures, threads=2, tune=False)
    want = fast(pictures)
    with torch.device("meta"):
        got = fast(pictures)
    assert torch.equal(got, want)


REFUSAL = (
    "a tensor of shape (1, 3, 20, 20) has no numbers in memory (it was freed, or stands in for one "
    "while torch traces): a compiled model computes with real ones"
)


def test_a_tensor_whose_memory_was_freed_is_refused():
    x = PICTURES["in one piece"].clone()
    fast = st3.engine.compile(net(), x, tune=False)
    x.untyped_storage().resize_(0)
    with pytest.raises(ValueError) as fault:
        fast(x)
    assert str(fault.value) == REFUSAL


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor:UserWarning")
def test_stand_ins_of_a_tracer_are_refused():
    x = PICTURES["in one piece"]
    fast = st3.engine.compile(net(), x, tune=False)
    mode = FakeTensorMode()
    with pytest.raises(ValueError) as fault:
        fast(mode.from_tensor(x))
    assert str(fault.value) == REFUSAL


def test_a_call_that_fails_waits_for_its_threads_which_have_the_memory_of_the_next_call(monkeypatch):
    x = PICTURES["in parts"]
    fast = st3.engine.compile(net(), x, threads=2, tune=False)
    want = fast(x)
    batched = fast._last.executor.execution
    assert isinstance(batched, BatchedExecution)
    first, second = batched.executions
    ended = []

    def fails(*inputs):
        time.sleep(0.05)  # the other one has begun by now
        raise KeyboardInterrupt

    def slow(*inputs, run=second.run):
        time.sleep(0.2)
        answer = run(*inputs)
        ended.append(True)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(first, "run", fails)
        patch.setattr(second, "run", slow)
        with pytest.raises(KeyboardInterrupt):
            fast(x)
        count = len(ended)
        time.sleep(0.5)
    assert count == len(ended) > 0
    assert torch.equal(fast(x), want)
