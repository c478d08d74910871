"""A floor of weights that every layer keeps, whatever the allocation says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pools import pool_of, zeros

from st3.allocations import Global
from st3.core.budget.allocation import ALLOCATIONS
from st3.core.budget.floors import cuts_with_floor
from st3.core.budget.ties import kept_masks
from st3.core.selection.select import Quota


@st.composite
def floors(draw):
    """Draw layers of distinct weights on very different scales, a floor, and a quota that it allows."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    scales = draw(st.lists(st.sampled_from([1e-3, 1.0, 50.0]), min_size=5, max_size=5))
    pairs = zip(sizes, scales, strict=False)
    tensors = [torch.randn(1, n, generator=generator, dtype=torch.float64) * scale for n, scale in pairs]
    floor = draw(st.integers(1, 10))
    most = sum(max(0, n - floor) for n in sizes)
    return pool_of(*tensors), floor, draw(st.integers(0, most))


@pytest.mark.parametrize("name", list(ALLOCATIONS))
@settings(max_examples=30)
@given(floors())
def test_every_layer_keeps_the_floor_and_the_total_is_exact(name, drawn):
    pool, floor, asked = drawn
    counts = zeros(pool, cuts_with_floor(ALLOCATIONS[name](), pool, Quota(asked, 0.5), floor))
    assert sum(counts) == asked
    for layer, lost in zip(pool.layers, counts, strict=True):
        assert layer.numel - lost >= min(floor, layer.numel)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", list(ALLOCATIONS))
@settings(max_examples=30)
@given(floors())
def test_every_layer_keeps_the_floor_in_single_and_half_precision(name, dtype, drawn):
    """Where float32 weights are tied a layer keeps more of them, never fewer; in bfloat16 the count is exact."""
    pool, floor, asked = drawn
    pool = pool_of(*(tensor.to(dtype) for tensor in pool.tensors))
    cuts = cuts_with_floor(ALLOCATIONS[name](), pool, Quota(asked, 0.5), floor)
    kept = [int(mask.sum()) for mask in kept_masks(pool.layers, cuts, pool.tensors, are_masks=False)]
    for layer, count in zip(pool.layers, kept, strict=True):
        assert count >= min(floor, layer.numel)
    if dtype == torch.bfloat16:
        assert pool.numel - sum(kept) == asked


def test_a_floor_by_hand():
    """Global would zero all of the small layer; it keeps two, and the large one makes up for it."""
    pool = pool_of(torch.tensor([[0.1, 0.2, 0.3, 0.4]]), torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    assert zeros(pool, cuts_with_floor(Global(), pool, Quota(4), 0)) == [4, 0]
    assert zeros(pool, cuts_with_floor(Global(), pool, Quota(4), 2)) == [2, 2]
    assert zeros(pool, cuts_with_floor(Global(), pool, Quota(3), 1)) == [3, 0]


def test_a_layer_smaller_than_the_floor_stays_whole():
    pool = pool_of(torch.tensor([[0.1, 0.2]]), torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]]))
    cuts = cuts_with_floor(Global(), pool, Quota(2), 3)
    assert cuts[0] is None
    assert zeros(pool, cuts) == [0, 2]


def test_a_floor_that_cannot_be_kept_is_refused():
    pool = pool_of(torch.ones(1, 4), torch.ones(1, 2))
    with pytest.raises(ValueError) as error:
        cuts_with_floor(Global(), pool, Quota(3), 2)
    assert str(error.value) == (
        "at least 2 weights per layer are to stay, 4 in all, but only 3 of 6 may: lower the sparsity or min_weights"
    )


@pytest.mark.parametrize("name", list(ALLOCATIONS))
def test_a_layer_that_starts_at_zero_does_not_upset_the_floor(name):
    """As the last layer of a residual branch or an adapter often does: its zeros tie at threshold 0."""
    torch.manual_seed(0)
    pool = pool_of(torch.zeros(10, 10), torch.randn(10, 10))
    cuts = cuts_with_floor(ALLOCATIONS[name](), pool, Quota(5), 3)
    assert sum(zeros(pool, cuts)) >= 5
    assert zeros(pool, cuts)[1] <= 5


def test_tied_weights_do_not_upset_the_floor():
    pool = pool_of(torch.full((1, 7), 0.1), torch.arange(1.0, 11.0).reshape(1, 10))
    cuts = cuts_with_floor(Global(), pool, Quota(5), 1)
    assert sum(zeros(pool, cuts)) >= 5


def test_scores_that_differ_only_in_double_precision_do_not_upset_the_floor():
    """Those of ProbMask: all probabilities are 1, and magnitudes decide in the ninth digit."""
    scores = torch.arange(16, dtype=torch.float64)
    scores[14] = scores[13]  # a tie where the first layer is cut to keep its floor
    pool = pool_of((1 + 1e-9 * scores)[None], torch.tensor([[2.0, 3.0, 4.0, 5.0]], dtype=torch.float64))
    assert zeros(pool, cuts_with_floor(Global(), pool, Quota(15), 2)) == [13, 2]


def test_where_ties_keep_too_much_the_others_lose_what_they_can():
    pool = pool_of(torch.full((1, 9), 0.1), torch.arange(1.0, 5.0).reshape(1, 4))
    assert zeros(pool, cuts_with_floor(Global(), pool, Quota(8), 2)) == [0, 2]
