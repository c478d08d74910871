"""Kernels read and write addresses: they get float32 tensors in memory, or the call is refused."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import st3
from st3.engine import native

pytestmark = pytest.mark.skipif(not native.is_built(), reason="the kernels are not built")


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3)).eval()


X = torch.randn(1, 3, 20, 20)


def test_torch_s_default_dtype_does_not_matter_while_kernels_are_measured():
    model = net()
    want = st3.engine.compile(model, X, tune=False)(X)
    torch.set_default_dtype(torch.float64)
    try:
        fast = st3.engine.compile(model, X)  # dense: the whole network is measured, too
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(fast(X), want, rtol=1e-4, atol=1e-5)


REFUSAL = (
    "a tensor of shape (1, 3, 20, 20) has no data in memory (it was freed, or it is a fake tensor of "
    "torch's tracer): call a compiled model with real tensors"
)


def freed(fast):
    x = X.clone()
    x.untyped_storage().resize_(0)
    fast(x)


def of_a_tracer(fast):
    fast(FakeTensorMode().from_tensor(X))


def under_a_tracer(fast):
    with FakeTensorMode(allow_non_fake_inputs=True):
        fast(X)


def functionalized(fast):
    torch.func.functionalize(fast)(X)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor:UserWarning")
@pytest.mark.parametrize("call", [freed, of_a_tracer, under_a_tracer, functionalized])
def test_tensors_without_data_are_refused(call):
    fast = st3.engine.compile(net(), X, tune=False)
    want = fast(X)
    with pytest.raises(ValueError) as fault:
        call(fast)
    assert str(fault.value).replace("16, 18, 18", "3, 20, 20") == REFUSAL
    assert torch.equal(fast(X), want)
