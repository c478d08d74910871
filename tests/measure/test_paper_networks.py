"""Multiply-adds of the paper's networks, dense and at the sparsities of its tables."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from st3.measure import LayerRow, Report, count_macs
from st3.models.mobilenet import mobilenet_v1
from st3.models.resnet_cifar import resnet20
from st3.models.resnet_imagenet import resnet50
from st3.models.vgg import vgg11, vgg11_st3, vgg16, vgg19
from st3.models.wide_resnet import wide_resnet, wrn34x2

Build = Callable[[], nn.Module]


def resnet50_v1() -> nn.Module:
    """The first ResNet-50 had a stage's stride in the 1×1 convolution."""
    model = resnet50()
    for stage in ("layer2", "layer3", "layer4"):
        block = model.get_submodule(f"{stage}.0")
        block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
    return model


@pytest.mark.parametrize(
    ("build", "side", "macs"),
    [
        pytest.param(resnet20, 32, 40_813_184, id="ResNet-20"),
        pytest.param(lambda: resnet20(conv_shortcut=False), 32, 40_551_040, id="ResNet-20, option A"),
        pytest.param(lambda: resnet20(classes=100), 32, 40_818_944, id="ResNet-20, 100 classes"),
        pytest.param(vgg11_st3, 32, 39_519_488, id="VGG-11 of the authors"),
        pytest.param(vgg11, 32, 152_769_536, id="VGG-11"),
        pytest.param(vgg16, 32, 313_201_664, id="VGG-16"),
        pytest.param(vgg19, 32, 398_136_320, id="VGG-19"),
        pytest.param(wrn34x2, 32, 270_987_776, id="WRN-34x2"),
        pytest.param(lambda: wide_resnet(28, 10, classes=100), 32, 5_243_386_368, id="WRN-28x10"),
        pytest.param(resnet50, 224, 4_089_184_256, id="ResNet-50"),
        pytest.param(resnet50_v1, 224, 3_857_973_248, id="ResNet-50 v1"),
        pytest.param(mobilenet_v1, 224, 568_740_352, id="MobileNetV1"),
    ],
)
def test_dense_macs_are_as_published(build: Build, side: int, macs: int) -> None:
    with torch.device("meta"):
        count = count_macs(build(), torch.empty(1, 3, side, side))
    assert count.total == macs
    assert count.activation_macs == 0
    assert count.uncounted == ()


def test_a_real_forward_pass_counts_the_same() -> None:
    assert count_macs(resnet50(), torch.zeros(1, 3, 224, 224)).total == 4_089_184_256


def test_the_shares_of_first_and_last_layer_are_as_published() -> None:
    with torch.device("meta"):
        resnet, mobilenet = resnet50(), mobilenet_v1()
        count = count_macs(resnet, torch.empty(1, 3, 224, 224))
        small = count_macs(mobilenet, torch.empty(1, 3, 224, 224))
    shares = [(count.of(resnet.get_parameter(f"{n}.weight")) or 0) / count.total for n in ("conv1", "fc")]
    assert shares == pytest.approx([0.0289, 0.00050], abs=5e-5)
    depthwise = sum(small.of(p) or 0 for name, p in mobilenet.named_parameters() if "depthwise" in name)
    assert depthwise / 1e6 == pytest.approx(17.39, abs=0.005)
    assert small.of(mobilenet.get_parameter("conv1.weight")) == 10_838_016


@cache
def dense_rows(build: Build, side: int) -> list[LayerRow]:
    with torch.device("meta"):
        model = build()
        count = count_macs(model, torch.empty(1, 3, side, side))
    weights = [(name, p) for name, p in model.named_parameters() if p.dim() >= 2]
    return [
        LayerRow(name, tuple(p.shape), p.numel(), 0, None, None, 0, len(p), count.of(p))
        for name, p in weights
    ]


def uniform(
    build: Build, side: int, sparsity: float, *, first_dense: bool = False, dense: str = "-"
) -> Report:
    """Return a report as if every layer had this sparsity, except the first and those with `dense` in their name."""
    rows = dense_rows(build, side)
    is_dense = [dense in row.name or (first_dense and row is rows[0]) for row in rows]
    sparse = [replace(row, zeros=round(sparsity * row.numel)) for row in rows]
    mixed = tuple(row if stays else thin for stays, row, thin in zip(is_dense, rows, sparse, strict=True))
    return Report(mixed, sparsity, None, 0, 0, (), (), None)


def mmacs(report: Report) -> float:
    assert report.sparse_macs is not None
    return report.sparse_macs / 1e6


@pytest.mark.parametrize(
    ("sparsity", "everywhere", "first_dense"),
    [
        (0.80, 817.8, 912.2),
        (0.90, 408.9, 515.1),
        (0.95, 204.5, 316.6),
        (0.965, 143.1, 257.0),
        (0.98, 81.8, 197.4),
        (0.99, 40.9, 157.7),
    ],
)
def test_uniform_sparsity_of_resnet50(sparsity: float, everywhere: float, first_dense: float) -> None:
    assert mmacs(uniform(resnet50, 224, sparsity)) == pytest.approx(everywhere, abs=0.06)
    assert mmacs(uniform(resnet50, 224, sparsity, first_dense=True)) == pytest.approx(first_dense, abs=0.06)


@pytest.mark.parametrize(
    ("sparsity", "everywhere", "first_dense", "depthwise_dense", "true_sparsity"),
    [
        (0.75, 142.2, 150.3, 163.4, 0.7419),
        (0.80, 113.7, 122.4, 136.3, None),
        (0.89, 62.6, 72.2, 87.7, None),
        (0.90, 56.9, 66.6, 82.3, 0.8903),
        (0.941, 33.6, 43.8, 60.1, None),
        (0.95, 28.4, 38.7, 55.2, 0.9397),
    ],
)
def test_uniform_sparsity_of_mobilenet(
    sparsity: float,
    everywhere: float,
    first_dense: float,
    depthwise_dense: float,
    true_sparsity: float | None,
) -> None:
    assert mmacs(uniform(mobilenet_v1, 224, sparsity)) == pytest.approx(everywhere, abs=0.06)
    assert mmacs(uniform(mobilenet_v1, 224, sparsity, first_dense=True)) == pytest.approx(
        first_dense, abs=0.06
    )
    gmp = uniform(mobilenet_v1, 224, sparsity, first_dense=True, dense="depthwise")
    assert mmacs(gmp) == pytest.approx(depthwise_dense, abs=0.06)
    if true_sparsity is not None:
        assert gmp.sparsity == pytest.approx(true_sparsity, abs=6e-5)


@pytest.mark.parametrize(
    ("build", "sparsity", "everywhere", "first_dense"),
    [
        (resnet20, 0.80, 8.163, 8.517),
        (resnet20, 0.90, 4.081, 4.479),
        (resnet20, 0.95, 2.041, 2.461),
        (resnet20, 0.98, 0.816, 1.250),
        (resnet20, 0.99, 0.408, 0.846),
        (vgg11_st3, 0.90, 3.952, 5.544),
        (vgg11_st3, 0.99, 0.395, 2.147),
        (vgg11, 0.90, 15.277, 16.869),
        (vgg11, 0.99, 1.528, 3.279),
        (wrn34x2, 0.90, 27.099, 27.497),
        (wrn34x2, 0.99, 2.710, 3.148),
    ],
)
def test_uniform_sparsity_of_the_cifar_networks(
    build: Build, sparsity: float, everywhere: float, first_dense: float
) -> None:
    # The published numbers do not round to whole weights, which makes a difference in layers this small.
    assert mmacs(uniform(build, 32, sparsity)) == pytest.approx(everywhere, rel=2e-3)
    assert mmacs(uniform(build, 32, sparsity, first_dense=True)) == pytest.approx(first_dense, rel=2e-3)
