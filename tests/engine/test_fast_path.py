"""The usual call takes the fast path; all other calls work or are refused as without it."""

from threading import Thread

import pytest
import torch
from tests.engine.outputs import assert_close
from torch import nn

import st3
from st3.engine import native

needs_kernels = pytest.mark.skipif(not native.is_built(), reason="the library is not built")
X = torch.randn(1, 3, 8, 8)


def features() -> list[nn.Module]:
    return [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(*features()), nn.Linear(8, 5)

    def forward(self, x):
        inner = self.body(x)
        return {"scores": self.head(inner), "inner": (inner, x)[0]}


class Twice(Pair):
    def forward(self, x):
        scores = self.head(self.body(x))
        return scores, scores, x


class Same(Pair):
    def forward(self, x):
        scores = self.head(self.body(x))
        return scores, scores


class PassesInput(Pair):
    def forward(self, x):
        return self.head(self.body(x)), x.flatten(1)


MODELS = {
    "classifier": lambda: nn.Sequential(*features(), nn.Linear(8, 5)),
    "pictures": lambda: nn.Conv2d(3, 4, 3),
    "output in the arena": lambda: nn.Sequential(*features()),
    "output that is read": Pair,
    "the same output twice": Same,
    "an output that is an input": PassesInput,
    "the same output twice, and an input": Twice,
}


def compiled(model: nn.Module, *args, threads=1):
    return st3.engine.compile(model.eval(), args or X, threads=threads, tune=False)


@needs_kernels
@pytest.mark.parametrize("name", ["classifier", "pictures", "output in the arena", "output that is read"])
def test_networks_without_torch_steps_have_a_fast_path(name):
    fast = compiled(MODELS[name]())
    assert fast._last.fits_fast_path((X,))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_fast_path_computes_the_same(name, threads):
    model = MODELS[name]().eval()
    fast = compiled(model, threads=threads)
    for x in (torch.randn(1, 3, 8, 8), torch.randn(1, 3, 8, 8)):
        assert_close(fast(x), model(x))


@pytest.mark.parametrize("name", MODELS)
def test_outputs_share_no_memory(name):
    model = MODELS[name]().eval()
    fast, x = compiled(model), X.clone()
    first, second = (torch.utils._pytree.tree_leaves(fast(x)) for _ in range(2))
    places = [each.untyped_storage().data_ptr() for each in (*first, *second, x)]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    "given",
    [
        lambda: X.to(memory_format=torch.channels_last),
        lambda: X.transpose(2, 3),
        lambda: torch.stack([X, X], -1)[..., 0],
        lambda: X.clone().requires_grad_(),
        lambda: nn.Parameter(X.clone()),
        lambda: X[:, :, :1].expand(1, 3, 8, 8),
        lambda: torch._neg_view(X),  # like the imaginary part of a conjugate
        lambda: torch.cat([X, X])[1:],
        lambda: torch.randn(2, 3, 8, 8),
        lambda: torch.randn(1, 3, 5, 9),
    ],
    ids=[
        "channels last",
        "transposed",
        "strided",
        "gradients",
        "parameter",
        "expanded",
        "negated",
        "offset",
        "batch",
        "size",
    ],
)
def test_every_other_tensor_works_too(given):
    model = MODELS["classifier"]().eval()
    fast = compiled(model)
    for x in (X, given(), X):
        answer = fast(x)
        assert not answer.requires_grad
        assert_close(answer, model(x).detach())


@pytest.mark.parametrize("batch", [1, 48])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_torch_s_default_dtype_and_device_do_not_matter(batch, is_transposed):
    model, x = MODELS["pictures"]().eval(), torch.randn(batch, 3, 64, 64)
    x = x.transpose(2, 3) if is_transposed else x
    fast = compiled(model, x)
    want = model(x)
    with torch.device("meta"):
        elsewhere = fast(x)
    torch.set_default_dtype(torch.float64)
    try:
        doubled = fast(x)
        report = fast.report()
    finally:
        torch.set_default_dtype(torch.float32)
    for answer in (elsewhere, doubled):
        assert answer.dtype is torch.float32
        assert_close(answer, want)
    assert "Conv" in report


def test_a_model_compiled_in_inference_mode_can_be_called_outside_it():
    class Partly(nn.Sequential):
        def forward(self, x):
            return self[1](torch.cumsum(self[0](x), 1))  # torch computes the sums

    model, x = Partly(nn.Linear(3, 4), nn.Linear(4, 2)).eval(), torch.randn(1, 3)
    with torch.inference_mode():
        fast = compiled(model, x)
    assert_close(fast(x), model(x))


def test_float32_is_not_taken_for_the_bits_of_another_type():
    class Ignores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x, ids):
            return self.layer(x)

    x, ids = torch.randn(1, 3), torch.arange(4)
    fast = compiled(Ignores(), x, ids)
    assert fast(x, ids).shape == (1, 2)
    with pytest.raises(
        ValueError, match=r"^input 1 is torch.float32; the model was compiled for torch.int64$"
    ):
        fast(x, torch.zeros(8))  # as many bytes as the four ids


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X.double(),), "the input is torch.float64; the model was compiled for torch.float32"),
        ((X[0],), "the input has 3 dimensions, 3x8x8; the model was compiled for 4, 1x3x8x8"),
        ((X.to("meta"),), "the input is on meta; the engine runs on the CPU: use x.cpu()"),
        ((X[:0],), "the input of shape 0x3x8x8 is empty"),
        ((X.to_sparse(),), "the input is torch.sparse_coo; the engine takes dense tensors: use x.to_dense()"),
        ((X, X), "Sequential was compiled for arguments of the form (...), got (..., ...)"),
        ((), "Sequential was compiled for arguments of the form (...), got ()"),
    ],
)
def test_bad_input_is_refused_after_a_fast_call(args, message):
    fast = compiled(MODELS["classifier"]())
    fast(X)
    with pytest.raises(ValueError) as caught:
        fast(*args)
    assert str(caught.value) == message


def test_fast_calls_from_several_threads_have_memory_of_their_own():
    model = MODELS["classifier"]().eval()
    fast = compiled(model)
    wrong = []

    def call(seed):
        x = torch.full_like(X, float(seed))
        want = model(x)
        wrong.extend(seed for _ in range(300) if not torch.allclose(fast(x), want, atol=1e-4))

    threads = [Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
