"""What every registered ramp must do, whoever wrote it."""

import dataclasses
import inspect
import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from st3.core.budget.ramp import RAMPS, resolve_ramp

pytestmark = pytest.mark.parametrize("name", list(RAMPS))

total_steps = st.integers(1, 100_000)
progress = st.floats(0.0, 1.0)


@st.composite
def settings_of(draw, name):
    """Draw a start, an end or both, in this order, for a ramp that has such fields; the others keep their defaults."""
    start, end = sorted(draw(st.tuples(st.floats(0.0, 0.9), st.floats(0.0, 1.0))))
    times = {"start": start, "end": end if end > start else start + 0.1}
    return {key: value for key, value in times.items() if key in inspect.signature(RAMPS[name]).parameters}


@given(data=st.data(), total=total_steps, places=st.lists(progress, min_size=2))
def test_it_asks_for_a_part_of_the_target_and_never_for_less_than_before(name, data, total, places):
    ramp = RAMPS[name](**data.draw(settings_of(name)))
    shares = [ramp.share(int(place * total), total) for place in sorted(places)]
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert shares == sorted(shares) or ramp.falls


@given(data=st.data(), total=total_steps)
def test_at_the_end_of_the_run_it_asks_for_the_whole_target(name, data, total):
    ramp = RAMPS[name](**data.draw(settings_of(name)))
    assert ramp.share(total, total) == 1.0


@given(data=st.data(), total=total_steps)
def test_it_asks_for_nothing_before_its_start_and_for_everything_from_its_end_on(name, data, total):
    settings = data.draw(settings_of(name))
    ramp = RAMPS[name](**settings)
    if "start" in settings:
        first = int(settings["start"] * total + 0.5)
        assert all(ramp.share(step, total) == 0.0 for step in range(max(0, first - 3), first))
    if "end" in settings:
        last = int(settings["end"] * total + 0.5)
        assert all(ramp.share(step, total) == 1.0 for step in range(last, min(last + 4, total + 1)))


@given(total=st.integers(1, 200))
def test_it_never_falls_from_one_step_to_the_next(name, total):
    ramp = resolve_ramp(name)
    shares = [ramp.share(step, total) for step in range(total + 1)]
    assert all(before <= after for before, after in itertools.pairwise(shares)) or ramp.falls


def test_it_prints_as_the_call_that_made_it(name):
    ramp = resolve_ramp(name)
    again = eval(repr(ramp), vars(sys.modules[type(ramp).__module__]).copy())
    assert again == ramp
    assert hash(again) == hash(ramp)


def test_ramps_with_other_times_differ(name):
    ramp = resolve_ramp(name)
    times = [field.name for field in dataclasses.fields(ramp) if field.name in ("start", "end")]
    for time in times:
        assert ramp != dataclasses.replace(ramp, **{time: getattr(ramp, time) + 0.01})


def test_its_settings_cannot_be_changed_afterwards(name):
    ramp = resolve_ramp(name)
    with pytest.raises(AttributeError):
        ramp.anything = 0.5
    for field in dataclasses.fields(ramp):
        with pytest.raises(AttributeError):
            setattr(ramp, field.name, getattr(ramp, field.name))
