"""What every registered allocation must do, whoever wrote it."""

import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pools import pool_of, random_pool, zeros

from st3.core.budget.allocation import ALLOCATIONS
from st3.core.selection.select import Quota, quota

pytestmark = pytest.mark.parametrize("name", list(ALLOCATIONS))

SHAPES = ((7, 3, 3, 3), (11, 5), (13, 7, 1, 1), (4, 9, 5))  # 189 + 55 + 91 + 180 = 515 weights
shapes = st.lists(st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple), min_size=1, max_size=5)
seeds = st.integers(0, 100_000)
shares = st.floats(0, 1)


def most_zeros(pool):
    """Every allocation must be able to leave one weight in each layer."""
    return pool.numel - len(pool.layers)


@settings(max_examples=40)
@given(shapes=shapes, seed=seeds, share=shares, fraction=st.floats(0, 0.999))
def test_exactly_as_many_weights_are_zeroed_as_asked(name, shapes, seed, share, fraction):
    pool = random_pool(shapes, seed)
    asked = int(share * most_zeros(pool))
    assert sum(zeros(pool, ALLOCATIONS[name]().cut(pool, Quota(asked, fraction)))) == asked


@settings(max_examples=40)
@given(shapes=shapes, seed=seeds, share=shares)
def test_no_layer_is_asked_for_more_than_it_has(name, shapes, seed, share):
    pool = random_pool(shapes, seed)
    cuts = ALLOCATIONS[name]().cut(pool, Quota(int(share * most_zeros(pool)), 0.5))
    assert len(cuts) == len(pool.layers)
    for layer, cut in zip(pool.layers, cuts, strict=True):
        if cut is not None:
            assert math.isfinite(cut.threshold)
            assert cut.threshold >= 0
            assert cut.zeros is None or 0 < cut.zeros <= layer.numel


@pytest.mark.parametrize("asked", [1, 2, 57, 128, 256, 387, 463, 499, 511])
@settings(max_examples=10)
@given(order=st.permutations(range(4)))
def test_the_order_of_the_layers_does_not_matter(name, order, asked):
    """Sizes and quotas are such that no two layers have a claim to the same last weight."""
    pool = random_pool(SHAPES, seed=0)
    cuts = ALLOCATIONS[name]().cut(pool, Quota(asked, 0.5))
    shuffled = ALLOCATIONS[name]().cut(pool.part(order), Quota(asked, 0.5))
    for i, cut in zip(order, shuffled, strict=True):
        assert (cut is None) == (cuts[i] is None)
        assert cut is None or cut.threshold == cuts[i].threshold


@settings(max_examples=40)
@given(seed=seeds, size=st.integers(2, 200), share=shares)
def test_it_works_with_one_layer(name, seed, size, share):
    pool = random_pool([(1, size)], seed)
    asked = 1 + int(share * (size - 2))
    (cut,) = ALLOCATIONS[name]().cut(pool, Quota(asked))
    assert zeros(pool, [cut]) == [asked]
    assert cut.threshold == pytest.approx(pool.tensors[0].abs().flatten().sort().values[asked - 1].item())


def test_a_quota_of_zero_leaves_every_layer_dense(name):
    assert ALLOCATIONS[name]().cut(random_pool(SHAPES, 0), Quota(0)) == [None] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@settings(max_examples=40)
@given(seed=seeds, sparsity=st.floats(0.01, 0.95))
def test_ties_can_only_add_zeros_in_any_precision(name, dtype, seed, sparsity):
    pool = random_pool(SHAPES, seed, dtype)
    asked = quota(pool.numel, sparsity)
    assert sum(zeros(pool, ALLOCATIONS[name]().cut(pool, asked))) >= asked.zeros


@settings(max_examples=40)
@given(seed=seeds, sparsity=st.floats(0.01, 0.95), order=st.permutations(range(4)))
def test_layers_of_different_precision_may_share_a_budget(name, seed, sparsity, order):
    pool = random_pool(SHAPES, seed)
    dtypes = (torch.float32, torch.bfloat16, torch.float64, torch.float32)
    mixed = pool_of(*(tensor.to(dtypes[i]) for i, tensor in zip(order, pool.tensors, strict=True)))
    asked = quota(mixed.numel, sparsity)
    assert sum(zeros(mixed, ALLOCATIONS[name]().cut(mixed, asked))) >= asked.zeros


@settings(max_examples=40)
@given(
    values=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=20, max_size=20), asked=st.integers(1, 17)
)
def test_with_many_ties_the_quota_is_met_and_only_ties_go_beyond_it(name, values, asked):
    """Were the weights tied with a layer's threshold spared, the quota would not be reached."""
    pool = pool_of(torch.tensor(values[:12]).reshape(3, 4), torch.tensor(values[12:]).reshape(1, 8))
    cuts = ALLOCATIONS[name]().cut(pool, Quota(asked))
    assert sum(zeros(pool, cuts)) >= asked
    strictly_below = sum(
        int((raw.abs() < cut.threshold * (1 - 1e-5)).sum())
        for raw, cut in zip(pool.tensors, cuts, strict=True)
        if cut is not None
    )
    assert strictly_below < asked


def test_a_layer_of_zeros_is_cut_like_any_other(name):
    pool = pool_of(torch.zeros(5, 5), torch.randn(5, 5, generator=torch.Generator().manual_seed(0)))
    for asked in (1, 10, 25, 30, 48):
        cuts = ALLOCATIONS[name]().cut(pool, Quota(asked, 0.5))
        assert sum(zeros(pool, cuts)) >= asked
        assert zeros(pool, cuts)[1] <= asked


def test_it_gives_the_same_answer_twice_and_leaves_the_weights_alone(name):
    pool = random_pool(SHAPES, 0)
    before = [tensor.clone() for tensor in pool.tensors]
    first, second = (ALLOCATIONS[name]().cut(pool, Quota(300, 0.25)) for _ in range(2))
    assert [cut.threshold for cut in first] == [cut.threshold for cut in second]
    assert all(torch.equal(a, b) for a, b in zip(before, pool.tensors, strict=True))


def test_what_it_remembers_for_speed_does_not_change_later_answers(name):
    warm = random_pool(SHAPES, 0)
    for asked in (500, 3, 250, 251, 249):
        cold = random_pool(SHAPES, 0)
        found = [zeros(pool, ALLOCATIONS[name]().cut(pool, Quota(asked))) for pool in (warm, cold)]
        assert found[0] == found[1]


def test_larger_quotas_never_shrink_the_total(name):
    pool = random_pool(SHAPES, 0)
    totals = [sum(zeros(pool, ALLOCATIONS[name]().cut(pool, Quota(asked)))) for asked in range(0, 511, 17)]
    assert totals == list(range(0, 511, 17))


def test_it_prints_as_the_call_that_made_it(name):
    allocation = ALLOCATIONS[name]()
    again = eval(repr(allocation), vars(sys.modules[type(allocation).__module__]).copy())
    assert again == allocation
    assert hash(again) == hash(allocation)
