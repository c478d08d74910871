"""What every registered ramp must do, whoever wrote it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from st3.core import ramps
from st3.core.budget.ramp import RAMPS

pytestmark = pytest.mark.parametrize("name", list(RAMPS))
FALLS = {"phases"}  # back to 0 and up again: its own tests are in test_ramps.py

sparsities = st.floats(0.0, 1.0, exclude_max=True)
starts = st.integers(0, 100_000)
lengths = st.integers(1, 100_000)


@given(final=sparsities, start=starts, length=lengths, steps=st.lists(st.integers(0, 300_000), min_size=2))
def test_it_never_falls_and_stays_between_zero_and_the_target(name, final, start, length, steps):
    ramp = RAMPS[name](final, start, start + length)
    values = [ramp(step) for step in sorted(steps)]
    assert values == sorted(values) or name in FALLS
    assert all(0.0 <= value <= final for value in values)


@given(final=sparsities, start=starts, length=lengths)
def test_it_asks_for_nothing_before_its_start_and_exactly_for_the_target_from_its_end_on(
    name, final, start, length
):
    end = start + length
    ramp = RAMPS[name](final, start, end)
    assert all(ramp(step) == 0.0 for step in range(max(0, start - 3), start))
    assert ramp(end) == ramp(end + 1) == ramp(10 * end) == final


@given(start=st.integers(0, 50), length=st.integers(1, 50))
def test_it_never_falls_from_one_step_to_the_next(name, start, length):
    ramp = RAMPS[name](0.95, start, start + length)
    values = [ramp(step) for step in range(start + length + 2)]
    assert all(before <= after for before, after in itertools.pairwise(values)) or name in FALLS


def test_at_sparsity_zero_it_never_asks_for_anything(name):
    ramp = RAMPS[name](0.0, 3, 9)
    assert {ramp(step) for step in range(20)} == {0.0}


def test_it_prints_as_the_call_that_made_it(name):
    ramp = RAMPS[name](0.9, 5, 80)
    again = eval(repr(ramp), vars(ramps).copy())
    assert again == ramp
    assert hash(again) == hash(ramp)


def test_ramps_with_other_settings_differ(name):
    ramp = RAMPS[name](0.9, 5, 80)
    assert ramp != RAMPS[name](0.8, 5, 80)
    assert ramp != RAMPS[name](0.9, 6, 80)


def test_it_cannot_be_changed_afterwards(name):
    ramp = RAMPS[name](0.9, 5, 80)
    with pytest.raises(AttributeError):
        ramp.final = 0.5
