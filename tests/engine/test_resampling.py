"""Up-sampling in every mode, and uneven adaptive pooling, run in the engine and agree with torch."""

import pytest
import torch
from tests.engine.outputs import assert_close
from torch import nn
from torch.nn import functional as F

import st3
from st3.engine.program import InTorch, Resample

SIZES = [
    {"scale_factor": 2},
    {"scale_factor": (3.0, 1.5)},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
    {"size": (23, 9)},
    {"size": (5, 31)},
    {"size": (1, 1)},
]
SMOOTH = [(mode, corners) for mode in ("bilinear", "bicubic") for corners in (True, False)]


class Between(nn.Module):
    """A function of images between two convolutions, the second of which reads zeros outside the image."""

    def __init__(self, function) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 5, 3, padding=1)
        self.function = function

    def forward(self, x):
        return self.second(self.function(torch.relu(self.first(x))))


def assert_right(function, batch=1):
    torch.manual_seed(0)
    model, x = Between(function).eval(), torch.randn(batch, 3, 11, 14)
    fast = st3.engine.compile(model, x, tune=False, threads=2)
    with torch.no_grad():
        assert_close(fast(x), model(x), 1e-5)
    return {type(step) for step in fast.program}


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("mode", "corners"), [("nearest", None), ("nearest-exact", None), *SMOOTH])
def test_up_sampling_agrees_with_torch(mode, corners, size):
    kinds = assert_right(lambda x: F.interpolate(x, mode=mode, align_corners=corners, **size))
    assert Resample in kinds
    assert InTorch not in kinds


@pytest.mark.parametrize("batch", [2, 8])
def test_pictures_of_a_batch_are_resampled_alike(batch):
    assert Resample in assert_right(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), batch)


@pytest.mark.parametrize("size", [(4, 5), (20, 20), (11, 4)])
def test_adaptive_pooling_with_windows_of_different_sizes_is_resampling(size):
    kinds = assert_right(lambda x: F.adaptive_avg_pool2d(x, size))
    assert Resample in kinds
    assert InTorch not in kinds


def test_means_of_many_pixels_stay_in_torch():
    assert InTorch in assert_right(lambda x: F.adaptive_avg_pool2d(x, (2, 3)))


def test_an_infinite_pixel_reaches_its_neighbours_only():
    model = nn.Upsample(scale_factor=2, mode="bilinear")
    x = torch.randn(1, 4, 6, 6)
    x[0, 1, 2, 2] = float("inf")
    fast = st3.engine.compile(nn.Sequential(nn.ReLU(), model).eval(), x, tune=False)
    assert torch.equal(fast(x).isfinite(), model(x.relu()).isfinite())
