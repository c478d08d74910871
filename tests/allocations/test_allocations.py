"""How sparsity is shared: worked numbers, and what the rules promise."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.pools import pool_of, zeros
from torch import nn

from st3.allocations import ERK, LAMP, Global, Sigma, Uniform
from st3.allocations.erk import erk_densities
from st3.allocations.lamp import lamp_scores
from st3.core.layers.filters import Filters
from st3.core.layers.layer import Layer
from st3.core.layers.shards import UNSHARDED
from st3.core.selection.select import Quota, quota

# ---------------------------------------------------------------- worked numbers

A = torch.tensor([[0.5, -0.4], [0.3, -0.2]], dtype=torch.float64)
B = torch.tensor([[0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("allocation", "thresholds", "counts"),
    [
        pytest.param(Global(), (0.4, 0.4), [3, 4], id="plain"),  # a tie: seven zeros instead of six
        pytest.param(Sigma(), (0.475, 0.316667), [3, 3], id="shape"),
        pytest.param(Sigma("count"), (0.462132, 0.326777), [3, 3], id="count"),
        pytest.param(Sigma("fan_in"), (0.55, 0.275), [4, 2], id="fan_in"),
    ],
)
def test_two_layers_at_half_sparsity(allocation, thresholds, counts):
    pool = pool_of(A, B)
    cuts = allocation.cut(pool, quota(12, 0.5))
    assert [cut.threshold for cut in cuts] == pytest.approx(thresholds, abs=5e-7)
    assert zeros(pool, cuts) == counts


@pytest.mark.parametrize(
    ("factor", "of_a", "of_b", "threshold"),
    [("shape", 2.0, 3.0, 0.95), ("count", 2.0, 2.828427, 0.924264), ("fan_in", 1.414214, 2.828427, 0.777817)],
)
def test_the_three_factors_and_their_common_threshold(factor, of_a, of_b, threshold):
    sigma, pool = Sigma(factor), pool_of(A, B)
    assert [sigma.factor_of(layer) for layer in pool.layers] == pytest.approx([of_a, of_b], abs=5e-7)
    cuts = sigma.cut(pool, quota(12, 0.5))
    assert [cut.threshold * cut.factor for cut in cuts] == pytest.approx([threshold, threshold], abs=5e-7)


@pytest.mark.parametrize(
    ("sparsity", "threshold", "count"), [(0.5, 0.15, 4), (0.75, 0.325, 6)], ids=["0.5", "0.75"]
)
def test_one_layer_of_two_filters(sparsity, threshold, count):
    pool = pool_of(torch.tensor([[0.5, -0.4, 0.1, 0.05], [0.3, -0.2, 0.02, 0.01]]))
    cuts = Global().cut(pool, quota(8, sparsity))
    assert cuts[0].threshold == pytest.approx(threshold, abs=2e-8)
    assert zeros(pool, cuts) == [count]


@pytest.mark.parametrize(
    ("shape", "groups", "shape_factor", "fan_in", "count"),
    [
        ((64, 3, 7, 7), Filters(), 81, 147, 9408),
        ((512, 1, 3, 3), Filters(), 519, 9, 4608),  # depthwise
        ((10, 64), Filters(), 74, 64, 640),
        ((64, 10), Filters(axis=1), 74, 64, 640),  # Hugging Face's Conv1D
        ((8, 3, 2, 2), Filters(axis=1, groups=4), 15, 8, 96),  # transposed, four groups
    ],
)
def test_factors_of_single_layers(shape, groups, shape_factor, fan_in, count):
    layer = Layer("layer", nn.Parameter(torch.empty(shape)), "Conv2d", groups, UNSHARDED)
    assert Sigma().factor_of(layer) == math.sqrt(shape_factor)
    assert Sigma("fan_in").factor_of(layer) == math.sqrt(fan_in)
    assert Sigma("count").factor_of(layer) == math.sqrt(count)


@pytest.mark.parametrize("factor", ["shape", "fan_in", "count"])
def test_sigma_spares_a_weight_that_lies_just_above_the_threshold(factor):
    """Among 25 million weights the next one is often less than a millionth away: that is not a tie, so it stays."""
    for low in torch.linspace(0.5, 1.0, 33):
        high = low * (1 + 3e-7)  # two or three floats further
        pool = pool_of(torch.stack([low, high, -2 * low, 3 * low, 4 * low]).reshape(1, 5))
        cuts = Sigma(factor).cut(pool, Quota(1, 0.5))
        assert zeros(pool, cuts) == [1]


def test_an_unknown_factor_is_refused():
    with pytest.raises(ValueError, match=r"^factor must be 'shape', 'fan_in' or 'count', got 'numel'$"):
        Sigma("numel")


def test_uniform_zeroes_the_same_share_of_every_layer():
    torch.manual_seed(0)
    pool = pool_of(torch.randn(10, 10), torch.randn(5, 10) * 100, torch.randn(2, 5) / 100)
    assert zeros(pool, Uniform().cut(pool, Quota(144))) == [90, 45, 9]


def test_uniform_cuts_every_layer_at_its_own_quantile():
    pool = pool_of(A, B)
    cuts = Uniform().cut(pool, quota(12, 0.5))  # two zeros of A, four of B, and halfway to the next
    assert [cut.threshold for cut in cuts] == pytest.approx([0.35, 0.45], abs=1e-15)
    assert [cut.zeros for cut in cuts] == [2, 4]


def test_a_layer_keeps_its_last_weight_where_the_quota_allows_it():
    pool = pool_of(torch.tensor([[1.0]]), torch.arange(1.0, 11.0).reshape(1, 10))
    assert zeros(pool, Uniform().cut(pool, Quota(9))) == [0, 9]
    assert zeros(pool, Uniform().cut(pool, Quota(10))) == [1, 9]


def test_a_fixed_layer_outside_the_pool_does_not_change_the_share_of_the_others():
    """uniform with the first layer dense: the rest at S, the total below it."""
    torch.manual_seed(0)
    pool = pool_of(torch.randn(4, 5), torch.randn(10, 10), torch.randn(10, 20))
    rest = pool.part([1, 2])
    assert zeros(rest, Uniform().cut(rest, quota(rest.numel, 0.9))) == [90, 180]


# ---------------------------------------------------------------- LAMP


def test_lamp_scores_of_one_two_three():
    found = lamp_scores(torch.tensor([1.0, 2.0, 3.0]))
    assert found.tolist() == pytest.approx([1 / 14, 4 / 13, 1.0], abs=1e-15)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40, unique=True))
def test_lamp_scores_rise_with_the_magnitude_and_end_at_one(magnitudes):
    scores = lamp_scores(torch.tensor(sorted(magnitudes), dtype=torch.float64))
    assert scores[-1] == 1.0
    assert bool((scores.diff() >= 0).all())
    assert bool((scores > 0).all())


def test_the_scores_of_an_all_zero_layer_are_zero():
    assert lamp_scores(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_lamp_by_hand():
    """Scores 1/14 4/13 1 and 1/9 1: the two smallest go, one from each layer; then 4/13."""
    pool = pool_of(torch.tensor([[3.0, -1.0, 2.0]]), torch.tensor([[-1.0, 8**0.5]]))
    assert zeros(pool, LAMP().cut(pool, Quota(1))) == [1, 0]
    assert zeros(pool, LAMP().cut(pool, Quota(2))) == [1, 1]
    cuts = LAMP().cut(pool, Quota(3))
    assert zeros(pool, cuts) == [2, 1]
    assert [cut.threshold for cut in cuts] == [2.0, 1.0]  # the largest zeroed magnitude of each layer


@given(seed=st.integers(0, 1000), share=st.floats(0.01, 0.9), scale=st.sampled_from([1e-6, 1e-3, 7.0, 1e4]))
def test_lamp_does_not_care_about_the_scale_of_a_layer(seed, share, scale):
    generator = torch.Generator().manual_seed(seed)
    first, second, third = (torch.randn(n, 7, generator=generator, dtype=torch.float64) for n in (3, 5, 9))
    asked = Quota(max(1, int(share * 119)))
    before, after = pool_of(first, second, third), pool_of(first, second * scale, third)
    assert zeros(before, LAMP().cut(before, asked)) == zeros(after, LAMP().cut(after, asked))


def test_lamp_never_empties_a_layer():
    torch.manual_seed(0)
    pool = pool_of(torch.randn(2, 2) * 1e-6, torch.randn(30, 30), torch.randn(1, 3) * 1e-3)
    counts = zeros(pool, LAMP().cut(pool, Quota(904)))  # three of 907 weights stay
    assert counts == [3, 899, 2]


def test_lamp_says_so_when_it_cannot_keep_a_weight_in_every_layer():
    with pytest.raises(ValueError) as error:
        LAMP().cut(pool_of(A, B), Quota(11))
    assert str(error.value) == (
        "allocation 'lamp' keeps at least one weight in each of the 2 layers, but only 1 weights may stay; "
        "ask for less sparsity"
    )


def test_lamp_shares_tied_scores_without_emptying_a_layer():
    """Two layers of equal weights: all scores tie pairwise, and the largest of each layer ties at 1."""
    pool = pool_of(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 2.0, 3.0]]))
    for asked in range(1, 5):
        counts = zeros(pool, LAMP().cut(pool, Quota(asked)))
        assert sum(counts) == asked
        assert max(counts) <= 2


# ---------------------------------------------------------------- ERK


def test_erk_by_hand():
    """sum/prod is 1 for the first layer and 10/16 for the second, so sums of shape are 4 and 10."""
    epsilon, densities = erk_densities([(2, 2), (8, 2)], 0.5)  # 10 of 20 weights stay
    assert epsilon == pytest.approx(10 / 14)
    assert densities == pytest.approx([10 / 14, 10 / 14 * 10 / 16])


def test_erk_fills_what_is_too_small_and_shares_the_rest():
    """15 of 20 weights stay; 15/14 would be more than all of the first layer, so 11 of 16 are left for the second."""
    epsilon, densities = erk_densities([(2, 2), (8, 2)], 0.25)
    assert epsilon == pytest.approx(11 / 10)
    assert densities == [1.0, pytest.approx(11 / 16)]


def test_erk_of_power_zero_is_uniform():
    shapes = [(16, 3, 3, 3), (64, 64, 3, 3), (10, 64)]
    _, densities = erk_densities(shapes, 0.75, power=0.0)
    assert densities == pytest.approx([0.25, 0.25, 0.25], abs=1e-3)  # floor in the reference's budget
    torch.manual_seed(0)
    pool = pool_of(*(torch.randn(shape) for shape in shapes))
    asked = quota(pool.numel, 0.75)
    assert zeros(pool, ERK(power=0.0).cut(pool, asked)) == pytest.approx(
        zeros(pool, Uniform().cut(pool, asked)), abs=1
    )


def test_erk_is_dense_at_sparsity_zero():
    assert erk_densities([(2, 2), (8, 2)], 0.0) == (math.inf, [1.0, 1.0])


@given(
    st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=4).map(tuple), min_size=1, max_size=6),
    st.floats(0.001, 0.999),
)
def test_erk_densities_are_densities_and_fill_the_budget(shapes, sparsity):
    epsilon, densities = erk_densities(shapes, sparsity)
    counts = [math.prod(shape) for shape in shapes]
    assert all(0.0 <= density <= 1.0 for density in densities)
    budget = sum(count - math.floor(sparsity * count) for count in counts)
    if epsilon:
        kept = sum(d * c for d, c in zip(densities, counts, strict=True))
        assert kept == pytest.approx(budget, rel=1e-9)
