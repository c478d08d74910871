"""The promises of test_every_method.py, kept by the methods that take blocks when they zero blocks of four weights."""

import pytest
import torch
from tests.methods import test_every_method as suite

from st3.core.budget.allocation import ALLOCATIONS
from st3.core.budget.ramp import RAMPS

pytestmark = pytest.mark.filterwarnings("ignore::st3.errors.LayerCollapseWarning")

BLOCK = 4
IN_BLOCKS = [method for method in suite.SETTINGS if not method.why_not_in_blocks(0.9)]
NAMES = [name for name in suite.METHODS if not suite.METHODS[name]().why_not_in_blocks(0.9)]
PROMISES = [
    suite.test_outputs_are_the_same_after_finalize,
    suite.test_finalize_leaves_a_plain_model_and_an_optimizer_without_our_keys,
    suite.test_it_touches_only_the_layers_it_was_given,
    suite.test_zeros_are_exactly_zero_and_parameters_stay_the_same_objects,
    suite.test_two_runs_are_the_same_run,
    suite.test_evaluation_changes_nothing_and_repeats,
    suite.test_a_copy_of_the_model_in_mid_training_is_plain_sparse_and_independent,
    suite.test_it_resumes_bit_for_bit_whatever_is_loaded_first,
    suite.test_a_sparse_model_without_raw_weights_is_refused_until_it_is_adopted,
    suite.test_weights_replaced_from_outside_stop_every_step_until_they_are_adopted,
    suite.test_with_other_weights_the_model_is_not_at_its_target_and_finalize_says_why,
    suite.test_the_best_sparse_weights_may_be_loaded_before_finalize,
]
PROMISES_BY_NAME = [
    suite.test_it_has_as_many_zeros_as_the_ramp_asks_for_after_every_step,
    suite.test_finalize_names_the_layer_that_was_replaced_in_the_model,
    suite.test_channels_last_weights_are_zeroed_like_contiguous_ones,
]


def words(value):
    return getattr(value, "__name__", str(value))


@pytest.fixture(autouse=True)
def _in_blocks(monkeypatch):
    monkeypatch.setattr(suite, "BLOCK", BLOCK)
    suite.finished.cache_clear()
    yield
    suite.finished.cache_clear()


def blocks(model):
    """Return the weights that are covered, with the block as last axis."""
    weights = (model.conv2.weight.movedim(1, -1), model.fc.weight)
    return [weight.detach().unflatten(-1, (-1, BLOCK)) for weight in weights]


def test_the_methods_are_those_with_thresholds_or_masks_of_the_largest_weights():
    assert sorted(NAMES) == ["acdc", "dnw", "feather", "gmp", "soft", "st3"]


@pytest.mark.parametrize("promise", PROMISES, ids=words)
@pytest.mark.parametrize("method", IN_BLOCKS, ids=str)
def test_the_promise_holds(method, promise):
    promise(method)


@pytest.mark.parametrize("promise", PROMISES_BY_NAME, ids=words)
@pytest.mark.parametrize("method", NAMES)
def test_the_promise_holds_by_name(method, promise):
    promise(method)


@pytest.mark.parametrize("allocation", list(ALLOCATIONS))
@pytest.mark.parametrize("method", NAMES)
def test_it_reaches_the_target_with_every_allocation(method, allocation):
    suite.test_it_reaches_the_target_with_every_allocation_or_refuses_it(method, allocation)


@pytest.mark.parametrize("ramp", list(RAMPS))
@pytest.mark.parametrize("method", NAMES)
def test_it_reaches_the_target_with_every_ramp_or_refuses_it(method, ramp):
    suite.test_it_reaches_the_target_with_every_ramp_or_refuses_it(method, ramp)


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("method", IN_BLOCKS, ids=str)
def test_zeros_come_in_whole_blocks_and_meet_the_target(method, sparsity):
    model, sparsifier = suite.run(method, sparsity=sparsity, steps=6)
    assert suite.zeroed(model, sparsifier) == suite.asked(sparsifier)
    assert {layer.name for layer in sparsifier.layers} == {"conv2.weight", "fc.weight"}
    for each in blocks(model):
        assert torch.equal((each != 0).any(-1), (each != 0).all(-1))
    sparsifier.finalize()


@pytest.mark.parametrize("method", NAMES)
def test_the_loss_falls_although_half_of_the_blocks_go(method):
    """Half, not four of five: in a layer of eight channels there are two blocks per output and place."""
    model, optimizer = suite.build()
    suite.sparsify(model, optimizer, method, sparsity=0.5, total_steps=60)
    losses = suite.train(model, optimizer, 60)
    assert losses[0] > 1.2
    assert sum(losses[-5:]) / 5 < 0.1


@pytest.mark.parametrize("method", [x for x in IN_BLOCKS if not x.why_not_in_blocks(0.999)], ids=str)
def test_it_stays_finite_when_no_block_is_left(method):
    model, sparsifier = suite.run(method, sparsity=0.999, steps=20)
    assert not any(bool(each.any()) for each in blocks(model))  # one weight would be left: rounded up to all
    sparsifier.detach()
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
