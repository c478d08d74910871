"""Constant and unread channels are removed, needed ones are kept, and the output stays the same."""

import pytest
import torch
import torch.nn.functional as F
from tests.engine.odd_models import randomise, zero_filters
from tests.engine.outputs import assert_close
from torch import Tensor, nn

import st3
from st3.engine.program import Conv, Linear


def compiled(model: nn.Module, x: Tensor) -> list[tuple[int, ...]]:
    """Compare the outputs and return the shapes of the compiled weights."""
    fast = st3.engine.compile(model, x, tune=False)
    with torch.no_grad():
        assert_close(fast(x), model(x), 1e-6)
    return [step.weight.shape for step in fast.program if isinstance(step, Conv | Linear)]


def chain(padding: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.Sigmoid(), nn.Conv2d(8, 4, 3, padding=padding)
    ).eval()


def test_a_filter_of_zeros_is_absorbed_by_the_next_bias():
    model = chain(padding=0)
    zero_filters(model[0].weight, 1, 5, 6)
    assert compiled(model, torch.randn(2, 3, 9, 9)) == [(5, 3, 3, 3), (4, 5, 3, 3)]


def test_a_constant_before_a_padded_convolution_stays_unless_it_is_zero():
    model = chain(padding=1)  # a sigmoid of the bias is not zero, the padding is
    zero_filters(model[0].weight, 1, 5)
    assert compiled(model, torch.randn(2, 3, 9, 9)) == [(8, 3, 3, 3), (4, 8, 3, 3)]
    model[1] = nn.ReLU().eval()
    with torch.no_grad():
        model[0].bias[[1, 5]] = torch.tensor([-1.0, 1.0])
    assert compiled(model, torch.randn(2, 3, 9, 9)) == [(7, 3, 3, 3), (4, 7, 3, 3)]


def test_an_unread_channel_is_not_computed():
    model = chain(padding=1)
    with torch.no_grad():
        model[2].weight[:, [0, 3]] = 0
    assert compiled(model, torch.randn(2, 3, 9, 9)) == [(6, 3, 3, 3), (4, 6, 3, 3)]


def test_a_removed_filter_may_be_the_last_reader_of_a_channel():
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for n in (5, 6, 4) for layer in (nn.LazyLinear(n), nn.ReLU()))).eval()
    model(torch.randn(1, 7))
    with torch.no_grad():
        model[4].weight[:, 2] = 0
        model[2].weight[:, 3] = 0
        model[2].weight[2, 3] = 1.0
    assert compiled(model, torch.randn(3, 7)) == [(4, 7), (5, 4), (4, 5)]


def test_a_network_without_any_weight_left_still_works():
    model = chain(padding=0)
    zero_filters(model[0].weight, *range(8))
    assert compiled(model, torch.randn(2, 3, 9, 9)) == [(1, 3, 3, 3), (4, 1, 3, 3)]
    zero_filters(model[2].weight, *range(4))
    assert compiled(model, torch.randn(2, 3, 9, 9)) == [(1, 3, 3, 3), (4, 1, 3, 3)]


class Residual(nn.Module):
    """A stem, one branch beside a shortcut, a depthwise convolution, pooling, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.branch = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu(x + self.norm(self.branch(x)))
        x = F.relu(self.depthwise(x))
        return self.head(F.max_pool2d(x, 2).flatten(1))


@pytest.mark.parametrize(
    ("zeroed", "left"),
    [
        (("branch",), 8),  # the shortcut still varies
        (("stem",), 8),  # the branch still varies
        (("stem", "branch"), 7),
        (("depthwise",), 8),  # the branch reads the stem's channel
    ],
)
def test_a_residual_channel_is_removed_only_if_both_sides_are_constant(zeroed, left):
    torch.manual_seed(0)
    model = randomise(Residual())
    with torch.no_grad():
        model.stem.bias[2] = 0.0  # otherwise the branch's padding keeps the constant
        model.norm.bias[2] = model.norm.running_mean[2] = 0.0
        model.branch.bias[2] = 0.0
    for name in zeroed:
        zero_filters(getattr(model, name).weight, 2)
    shapes = compiled(model, torch.randn(2, 3, 4, 4))
    assert shapes == [(left, 3, 1, 1), (left, left, 3, 3), (left, 1, 3, 3), (5, 4 * left)]


class Tokens(nn.Module):
    """Linear layers over the last of three axes, and a norm over the middle one."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(6, 12), nn.Linear(12, 6), nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.down(F.gelu(self.up(x))))


def test_dead_hidden_units_of_tokens_are_removed():
    torch.manual_seed(0)
    model = randomise(Tokens())
    zero_filters(model.up.weight, 0, 3, 7)
    zero_filters(model.down.weight, 1)
    assert compiled(model, torch.randn(2, 5, 6)) == [(9, 6), (6, 9)]


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(2, 4, 1), nn.Conv2d(2, 4, 3, padding=1)
        self.joined, self.grouped = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 4, 3, groups=2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        left = F.relu(self.left(x))
        y = self.joined(torch.cat([left, F.avg_pool2d(self.right(x), 3, 1, 1)], 1))
        return self.grouped(y), left


def test_outputs_and_inputs_of_grouped_convolutions_keep_their_channels_and_concatenated_ones_lose_theirs():
    torch.manual_seed(0)
    model = Branches().eval()
    zero_filters(model.left.weight, 0)  # an output of the model
    zero_filters(model.right.weight, 1, 2)
    zero_filters(model.joined.weight, 3)  # read by a grouped convolution
    with torch.no_grad():
        model.right.bias[1] = 0.0  # the mean over a padded window is constant only if it is zero
    assert compiled(model, torch.randn(2, 2, 5, 5)) == [
        (4, 2, 1, 1),
        (3, 2, 3, 3),
        (4, 7, 1, 1),
        (4, 2, 3, 3),
    ]


class Gated(nn.Module):
    """Channels scaled by a gate, a plane added to all of them, their halves exchanged, and a norm of all."""

    def __init__(self, adds_plane: bool) -> None:
        super().__init__()
        self.adds_plane = adds_plane
        self.stem, self.gate, self.plane = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 1), nn.Conv2d(6, 1, 1)
        self.wide, self.norm, self.last = nn.Conv2d(6, 8, 1), nn.GroupNorm(2, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = x * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(x, 1)))
        rows = self.plane(x)[0, 0]  # (h, w), as wide as x has channels
        x = torch.cat([x[:, 3:], x[:, :3]], 1)
        return self.last(self.norm(self.wide(x + rows if self.adds_plane else x)))


@pytest.mark.parametrize("adds_plane", [False, True])
def test_gated_and_selected_channels_are_removed_and_those_of_a_norm_are_kept(adds_plane):
    torch.manual_seed(0)
    model = Gated(adds_plane).eval()
    with torch.no_grad():
        model.wide.weight[:, [0, 4]] = 0  # channels 3 and 1 of the stem, if nothing else reads them
        model.plane.weight[:, [1, 3]] = 0
        model.gate.weight[:, [1, 3]] = 0
        model.last.weight[:, 5] = 0
    shapes = compiled(model, torch.randn(1, 3, 4, 6))
    plane = [(1, 4, 1, 1)] if adds_plane else []
    assert shapes == [(4, 3, 1, 1), (4, 4), *plane, (8, 4, 1, 1), (2, 8, 1, 1)]
