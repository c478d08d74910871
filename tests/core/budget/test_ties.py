"""Scores tied at a threshold: masks are exact in every precision, raw weights in half precision."""

import pytest
import torch
from tests.pools import pool_of

from st3.allocations import LAMP, Global, Sigma
from st3.core.budget.allocation import ALLOCATIONS
from st3.core.budget.floors import cuts_with_floor
from st3.core.budget.ties import kept_masks
from st3.core.selection.select import Quota

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def counts(pool, cuts, *, are_masks):
    masks = kept_masks(pool.layers, cuts, pool.tensors, are_masks=are_masks)
    return [int(mask.sum()) for mask in masks]


def few_magnitudes(dtype, *, are_masks):
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 8), (5, 4), (1, 12)]
    tensors = [(torch.randint(1, 4, shape, generator=generator) / 8).to(dtype) for shape in shapes]
    return pool_of(*tensors, are_masks=are_masks)


@pytest.mark.parametrize("name", list(ALLOCATIONS))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("floor", [0, 1, 10])
@pytest.mark.parametrize("asked", [1, 20, 47, 50])
def test_masks_are_exact_although_nearly_all_scores_tie(name, dtype, floor, asked):
    pool = few_magnitudes(dtype, are_masks=True)
    kept = counts(pool, cuts_with_floor(ALLOCATIONS[name](), pool, Quota(asked), floor), are_masks=True)
    assert pool.numel - sum(kept) == asked
    assert min(kept) >= floor


@pytest.mark.parametrize("name", list(ALLOCATIONS))
@pytest.mark.parametrize("floor", [0, 10])
def test_raw_weights_are_exact_in_half_precision(name, floor):
    """With a floor of 10 in three layers, 50 of 80 is all that may go."""
    pool = few_magnitudes(torch.bfloat16, are_masks=False)
    kept = counts(pool, cuts_with_floor(ALLOCATIONS[name](), pool, Quota(50), floor), are_masks=False)
    assert sum(kept) == 30
    assert min(kept) >= floor


def test_of_tied_scores_the_first_stay():
    pool = pool_of(torch.tensor([[2.0, -1.0, 1.0]]), torch.tensor([[1.0, 3.0, 1.0]]), are_masks=True)
    first, second = kept_masks(pool.layers, Global().cut(pool, Quota(2)), pool.tensors, are_masks=True)
    assert first.tolist() == [[True, True, True]]
    assert second.tolist() == [[False, True, False]]


def test_scores_tie_with_the_factors_of_their_layers():
    """The shapes add up to 4 and 9, so the factors are 2 and 3: 3 * 2 ties with 2 * 3."""
    pool = pool_of(torch.full((1, 3), 3.0), torch.full((1, 8), 2.0), are_masks=True)
    kept = counts(pool, Sigma().cut(pool, Quota(5)), are_masks=True)
    assert kept == [3, 3]


def test_in_single_precision_all_raw_weights_at_the_threshold_go():
    pool = few_magnitudes(torch.float32, are_masks=False)
    assert sum(counts(pool, Global().cut(pool, Quota(1)), are_masks=False)) < pool.numel - 1


def test_equal_weights_with_a_floor_are_no_reason_to_refuse():
    """As before a state is loaded: all layers fall below the floor together, and the last alone could not make up."""
    pool = pool_of(torch.full((4, 4), 0.1), torch.full((3, 5), 0.1))
    cuts = cuts_with_floor(LAMP(), pool, Quota(10), 3)
    assert min(counts(pool, cuts, are_masks=False)) >= 3
