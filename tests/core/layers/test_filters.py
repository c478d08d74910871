"""Where a weight keeps its filters: checked against what the layer computes, one output at a time."""

import itertools
import math

import pytest
import torch
from torch import nn

from st3.core.layers.filters import Filters

# One module of each kind and the shape of an input as large as its kernel.
PLAIN = {
    "linear": (nn.Linear(3, 5, bias=False), (3,)),
    "conv1d": (nn.Conv1d(3, 4, 2, bias=False), (3, 2)),
    "conv2d": (nn.Conv2d(3, 4, (2, 3), bias=False), (3, 2, 3)),
    "conv3d": (nn.Conv3d(2, 3, (1, 2, 2), bias=False), (2, 1, 2, 2)),
    "grouped conv2d": (nn.Conv2d(4, 6, 2, groups=2, bias=False), (4, 2, 2)),
    "depthwise conv2d": (nn.Conv2d(3, 3, 2, groups=3, bias=False), (3, 2, 2)),
    "two filters per channel": (nn.Conv2d(3, 6, 2, groups=3, bias=False), (3, 2, 2)),
}
TRANSPOSED = {
    "transposed 1d": nn.ConvTranspose1d(3, 4, 2, bias=False),
    "transposed 2d": nn.ConvTranspose2d(3, 4, (2, 3), bias=False),
    "transposed 3d": nn.ConvTranspose3d(2, 3, (1, 2, 2), bias=False),
    "grouped transposed 2d": nn.ConvTranspose2d(4, 6, (2, 1), groups=2, bias=False),
    "depthwise transposed 2d": nn.ConvTranspose2d(3, 3, 2, groups=3, bias=False),
}


def numbered(module):
    """Give every weight a different number, so that a sum tells which weights it contains."""
    with torch.no_grad():
        weight = module.double().weight
        return weight.copy_(torch.arange(weight.numel()).reshape(weight.shape) ** 2 + 1.0).detach()


def per_filter(filters, values):
    """Return the sums in the order of the layer's outputs."""
    return filters.sums(values).flatten().tolist()


@pytest.mark.parametrize(("module", "shape"), PLAIN.values(), ids=PLAIN)
def test_a_filter_holds_the_weights_that_feed_one_output(module, shape):
    weight, filters = numbered(module), Filters()
    ones = torch.ones(1, *shape, dtype=torch.float64)  # as large as the kernel: one output per filter
    assert per_filter(filters, weight) == module(ones).flatten().tolist()
    assert filters.count(weight.shape) == module(ones).numel()


@pytest.mark.parametrize("module", TRANSPOSED.values(), ids=TRANSPOSED)
def test_a_filter_of_a_transposed_convolution_holds_the_weights_that_feed_one_output_channel(module):
    weight, filters = numbered(module), Filters(axis=1, groups=module.groups)
    inputs, outputs = module.in_channels // module.groups, module.out_channels // module.groups
    kernel = list(itertools.product(*map(range, module.kernel_size)))
    expected = []
    for output in range(module.out_channels):
        group, inside = divmod(output, outputs)
        members = range(group * inputs, (group + 1) * inputs)
        expected.append(sum(weight[(i, inside, *where)].item() for i in members for where in kernel))
    assert per_filter(filters, weight) == expected
    assert filters.count(weight.shape) == module.out_channels
    assert filters.size(weight.shape) == inputs * len(kernel)

    one = torch.ones(1, module.in_channels, *[1] * len(module.kernel_size), dtype=torch.float64)
    assert module(one).flatten(2).sum(2).flatten().tolist() == expected  # the layer itself agrees


def test_the_output_axis_of_hugging_faces_conv1d_is_the_second():
    weight = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])  # (inputs, outputs)
    filters = Filters(axis=1)
    assert filters.sums(weight).tolist() == [[9.0, 18.0, 36.0]]
    assert filters.count(weight.shape) == 3
    assert filters.size(weight.shape) == 2


@pytest.mark.parametrize(
    ("shape", "filters", "count", "size"),
    [
        ((64, 3, 7, 7), Filters(), 64, 147),
        ((512, 1, 3, 3), Filters(), 512, 9),  # depthwise
        ((10, 64), Filters(), 10, 64),
        ((64, 10), Filters(axis=1), 10, 64),
        ((8, 3, 2, 2), Filters(axis=1, groups=4), 12, 8),
    ],
)
def test_count_and_size_of_filters(shape, filters, count, size):
    assert filters.count(shape) == count
    assert filters.size(shape) == size
    assert count * size == math.prod(shape)


EVERY = {
    "rows": (Filters(), (4, 2, 3)),
    "columns": (Filters(axis=1), (4, 2, 3)),
    "grouped": (Filters(axis=1, groups=2), (4, 2, 3)),
    "depthwise transposed": (Filters(axis=1, groups=4), (4, 1, 3)),
    "matrix": (Filters(axis=1), (4, 3)),
}


@pytest.mark.parametrize(("filters", "shape"), EVERY.values(), ids=EVERY)
def test_what_is_summed_per_filter_is_spread_back_to_that_filters_weights(filters, shape):
    """Label every weight by its filter: each label then marks as many weights as a filter has, and only its own."""
    per_weight = filters.sums(torch.ones(shape))
    labels = torch.arange(filters.count(shape)).reshape(per_weight.shape)
    spread = filters.spread(labels, shape).expand(shape)
    for label in range(filters.count(shape)):
        members = (spread == label).float()
        assert members.sum() == filters.size(shape)
        sums = filters.sums(members).flatten().tolist()
        assert sums == [filters.size(shape) if i == label else 0 for i in range(filters.count(shape))]


@pytest.mark.parametrize(("filters", "shape"), EVERY.values(), ids=EVERY)
def test_filters_are_the_same_in_any_memory_layout(filters, shape):
    values = torch.arange(math.prod(shape)).reshape(shape).double()
    axes = list(reversed(range(len(shape))))
    strided = values.permute(axes).contiguous().permute(axes)
    assert not strided.is_contiguous()
    assert torch.equal(filters.sums(strided), filters.sums(values))


def test_a_channels_last_convolution_has_the_same_filters():
    weight = torch.arange(2 * 3 * 2 * 2.0).reshape(2, 3, 2, 2)
    assert torch.equal(Filters().sums(weight.to(memory_format=torch.channels_last)), Filters().sums(weight))


def test_counting_a_mask_gives_whole_numbers():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    sums = Filters().sums(mask)
    assert sums.tolist() == [[2], [0]]
    assert not sums.is_floating_point()


def test_a_filter_of_one_weight_is_its_own_sum_and_the_weight_is_not_shared():
    weight = torch.tensor([1.0, 2.0])
    sums = Filters().sums(weight)
    sums += 1
    assert weight.tolist() == [1.0, 2.0]
