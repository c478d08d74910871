"""Memory that is shared: residuals in place, pending convolutions, calls from several threads."""

from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest
import torch
from torch import nn

import st3


class Residual(nn.Module):
    """head(x + second(relu(first(x)))): the sum could be written over x, which `first` still reads."""

    def __init__(self, first, second, channels):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.first, self.second = first, second
        self.head = nn.Conv2d(channels, 8, 1)

    def forward(self, x):
        x = self.stem(x).relu()
        return self.head(x + self.second(self.first(x).relu()))


class Pending(nn.Module):
    """A convolution that is emitted with its reader, after the last step that reads the same value."""

    def __init__(self, channels):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.first = nn.Conv2d(channels, channels, 1)
        self.side = nn.Conv2d(3, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x):
        value = self.stem(x).relu()
        pending = self.first(value).relu()
        return (value + self.side(x)).relu(), self.second(pending)


def make_sparse(model, share):
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)
            if parameter.dim() > 1:
                parameter.mul_(torch.rand_like(parameter) < share)
    return model.eval()


def depthwise(channels, size):
    return nn.Conv2d(channels, channels, size, padding=size // 2, groups=channels)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [8, 14, 56])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Residual(nn.Conv2d(32, 32, 1), depthwise(32, 3), 32),
        lambda: Residual(nn.Conv2d(64, 64, 1), depthwise(64, 5), 64),
        lambda: Residual(nn.Conv2d(64, 128, 1), nn.Conv2d(128, 64, 1), 64),
        lambda: Pending(32),
    ],
    ids=["depthwise 3", "depthwise 5", "pointwise", "pending"],
)
def test_a_sum_does_not_overwrite_a_value_that_is_still_read(make, size, threads):
    torch.manual_seed(1)
    model, x = make_sparse(make(), 0.15), torch.randn(2, 3, size, size)
    got = st3.engine.compile(model, x, threads=threads, tune=False)(x)
    torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-3)


def test_equal_arguments_of_different_types_are_distinguished():
    class Doubles(nn.Module):
        def forward(self, x, k):
            return x * 2 if isinstance(k, bool) else x * 3

    x = torch.ones(2, 3)
    fast = st3.engine.compile(Doubles().eval(), (x, 1))
    assert torch.equal(fast(x, 1), x * 3)
    assert torch.equal(fast(x, True), x * 2)


def test_models_are_compiled_in_several_threads_at_once():
    models = [nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).eval() for _ in range(6)]
    x = torch.randn(1, 6)
    with ThreadPoolExecutor(len(models)) as threads:
        made = list(threads.map(lambda model: st3.engine.compile(model, x, tune=False), models))
    for model, fast in zip(models, made, strict=True):
        torch.testing.assert_close(fast(x), model(x))


def test_calls_from_several_threads_with_many_shapes_do_not_interfere():
    model = nn.Linear(6, 4).eval()
    fast = st3.engine.compile(model, torch.randn(1, 6), tune=False)
    wrong = []

    def call(first):
        for rows in range(first, first + 12):
            x = torch.full((rows, 6), float(rows))
            if not torch.allclose(fast(x), model(x), atol=1e-4):
                wrong.append(rows)

    threads = [Thread(target=call, args=(first,)) for first in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
