"""Parameter counts of the paper's networks, worked out by hand or counted in the authors' program."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from st3.models.digits import digits_cnn
from st3.models.mobilenet import mobilenet_v1
from st3.models.resnet_cifar import resnet20
from st3.models.resnet_imagenet import resnet50
from st3.models.vgg import vgg11, vgg11_st3, vgg16, vgg19
from st3.models.wide_resnet import wide_resnet, wrn34x2

Build = Callable[[], nn.Module]


def on_meta(build: Build) -> nn.Module:
    """Build the network without allocating memory: these tests need shapes only."""
    with torch.device("meta"):
        return build()


@pytest.mark.parametrize(
    ("build", "layers", "numel", "norm_parameters"),
    [
        pytest.param(resnet20, 22, 270_896, 1_568, id="ResNet-20"),
        pytest.param(lambda: resnet20(conv_shortcut=False), 20, 268_336, 1_376, id="ResNet-20, option A"),
        pytest.param(lambda: resnet20(classes=100), 22, 276_656, 1_568, id="ResNet-20, 100 classes"),
        pytest.param(vgg11_st3, 5, 371_648, 896, id="VGG-11 of the authors"),
        pytest.param(vgg11, 9, 9_222_848, 5_504, id="VGG-11"),
        pytest.param(vgg16, 14, 14_715_584, 8_448, id="VGG-16"),
        pytest.param(vgg19, 17, 20_024_000, 11_008, id="VGG-19"),
        pytest.param(wrn34x2, 35, 1_862_576, 4_512, id="WRN-34x2"),
        pytest.param(lambda: wide_resnet(28, 10, classes=100), 29, 36_518_832, 17_952, id="WRN-28x10"),
        pytest.param(resnet50, 54, 25_502_912, 53_120, id="ResNet-50"),
        pytest.param(mobilenet_v1, 28, 4_209_088, 21_888, id="MobileNetV1"),
        pytest.param(digits_cnn, 4, 23_808, 224, id="digits"),
    ],
)
def test_layers_weights_and_norms_are_as_published(
    build: Build, layers: int, numel: int, norm_parameters: int
) -> None:
    parameters = list(on_meta(build).parameters())
    matrices = [p for p in parameters if p.dim() >= 2]
    assert len(matrices) == layers
    assert sum(p.numel() for p in matrices) == numel
    assert sum(p.numel() for p in parameters) == numel + norm_parameters  # so there are no biases


def test_resnet50s_classifier_holds_eight_percent_of_its_weights() -> None:
    model = on_meta(resnet50)
    sizes = {name: p.numel() for name, p in model.named_parameters() if p.dim() >= 2}
    total = sum(sizes.values())
    assert sizes["conv1.weight"] / total == pytest.approx(0.00037, abs=5e-6)
    assert sizes["fc.weight"] / total == pytest.approx(0.0803, abs=5e-5)


def test_mobilenets_depthwise_convolutions_hold_few_weights() -> None:
    convs = [m for m in on_meta(mobilenet_v1).modules() if isinstance(m, nn.Conv2d)]
    assert convs[0].weight.numel() == 864
    assert sum(m.weight.numel() for m in convs if m.groups > 1) == 44_640


def test_resnet50_has_the_parameter_names_of_most_checkpoints() -> None:
    names = {name for name, _ in on_meta(resnet50).named_parameters()}
    assert {"conv1.weight", "bn1.bias", "fc.weight", "layer1.0.downsample.0.weight"} <= names
    assert {"layer3.5.conv2.weight", "layer4.2.bn3.weight", "layer2.0.downsample.1.bias"} <= names
    assert sum("downsample.0" in name for name in names) == 4


def test_resnet20_names_its_shortcuts() -> None:
    names = {name for name, _ in on_meta(resnet20).named_parameters()}
    assert {name for name in names if "shortcut.0" in name} == {
        "layer2.0.shortcut.0.weight",
        "layer3.0.shortcut.0.weight",
    }
    assert {
        "conv1.weight",
        "bn1.weight",
        "layer3.2.conv2.weight",
        "layer2.0.shortcut.1.bias",
        "fc.weight",
    } <= names


def test_the_strides_of_resnet50_are_in_the_3x3_convolutions() -> None:
    convs = {n: m for n, m in on_meta(resnet50).named_modules() if isinstance(m, nn.Conv2d)}
    strided = {name for name, conv in convs.items() if conv.stride == (2, 2) and "downsample" not in name}
    assert strided == {"conv1", "layer2.0.conv2", "layer3.0.conv2", "layer4.0.conv2"}


def test_option_a_keeps_every_second_pixel_and_pads_channels_with_zeros() -> None:
    picture = torch.arange(2 * 16 * 4 * 4.0).reshape(2, 16, 4, 4)
    block = resnet20(conv_shortcut=False).get_submodule("layer2.0.shortcut")
    out = block(picture)
    assert out.shape == (2, 32, 2, 2)
    assert torch.equal(out[:, 8:24], picture[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


def test_the_dropout_of_a_wide_resnet_drops_whole_channels() -> None:
    drops = [m for m in on_meta(wrn34x2).modules() if isinstance(m, nn.Dropout2d)]
    assert len(drops) == 15
    assert {drop.p for drop in drops} == {0.2}


def test_wide_resnet_refuses_a_depth_that_is_not_6n_plus_4() -> None:
    with pytest.raises(ValueError, match=r"depth of 6n \+ 4 .*, got 30"):
        wide_resnet(30, 2, classes=10)
