"""Ramps: the paper's numbers, moments as fractions or steps, and what is refused."""

import math

import pytest
import torch
from torch import nn

import st3
from st3.core.budget.ramp import resolve_ramp, step_of
from st3.ramps import Constant, Cubic, Linear, Phases

# Progress at the *start* of an epoch, by the authors' program: what holds after all steps of the epochs before it.
EPOCHS = (5, 6, 10, 14, 20, 30, 40, 50, 60, 70, 80)
CIFAR = (0, 0.039469, 0.186963, 0.318528, 0.488, 0.703704, 0.848296, 0.936, 0.981037, 0.997630, 1)
IMAGENET = (0, 0.065196, 0.297668, 0.488, 0.703704, 0.912209, 0.989026, 1, 1, 1, 1)


@pytest.mark.parametrize("steps_per_epoch", [1, 352], ids=["1 step per epoch", "352 steps per epoch"])
@pytest.mark.parametrize(
    ("end", "published"), [pytest.param(80, CIFAR, id="5-80"), pytest.param(50, IMAGENET, id="5-50")]
)
def test_the_cubic_ramp_has_the_published_values_at_the_start_of_epochs(end, published, steps_per_epoch):
    ramp = Cubic(1.0, 5 * steps_per_epoch, end * steps_per_epoch)
    assert tuple(round(ramp(epoch * steps_per_epoch), 6) for epoch in EPOCHS) == published


def test_the_cubic_ramp_is_the_programs_formula_at_every_batch():
    """c = 1 - (1 - k / ((e1 - e0) B))^3 after batch `b` of epoch `e`, k = (e - e0) B + b + 1."""
    first, last, batches = 2, 5, 4
    ramp = Cubic(0.9, first * batches, last * batches)
    for epoch in range(7):
        for batch in range(batches):
            k = (epoch - first) * batches + batch + 1
            progress = 0.0 if epoch < first else 1.0 if epoch >= last else k / ((last - first) * batches)
            done = epoch * batches + batch + 1  # optimizer steps after this batch
            assert ramp(done) == pytest.approx(0.9 * (1 - (1 - progress) ** 3), abs=1e-15)


def test_the_cubic_ramp_is_zero_up_to_its_first_epoch_and_full_right_after_its_last_batch():
    batches = 352
    ramp = Cubic(0.9, 5 * batches, 80 * batches)
    assert ramp(5 * batches) == 0.0
    assert ramp(5 * batches + 1) > 0.0
    assert ramp(80 * batches - 1) < 0.9
    assert ramp(80 * batches) == 0.9


def test_small_cubic_numbers_by_hand():
    ramp = Cubic(final=0.8, start=2, end=4)
    assert [ramp(step) for step in range(6)] == [0.0, 0.0, 0.0, 0.8 * 0.875, 0.8, 0.8]


def test_small_linear_numbers_by_hand():
    ramp = Linear(final=0.8, start=2, end=6)
    assert [ramp(step) for step in range(8)] == [0.0, 0.0, 0.0, 0.2, 0.4, pytest.approx(0.6), 0.8, 0.8]


@pytest.mark.parametrize("steps_per_epoch", [1, 7])
def test_the_phases_are_acdcs_for_imagenet(steps_per_epoch):
    """Pruned at 10, 20, ..., 70 and 85 of 100 epochs, restored at 15, ..., 65 and 75."""
    ramp = Phases(0.9, 10 * steps_per_epoch, 85 * steps_per_epoch)
    asked = [ramp(step) for step in range(100 * steps_per_epoch + 1)]
    changes = [step / steps_per_epoch for step in range(1, len(asked)) if asked[step] != asked[step - 1]]
    assert changes == [10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 85]
    assert asked[0] == 0.0
    assert asked[-1] == 0.9


def test_the_phases_are_acdcs_for_cifar():
    ramp = Phases(0.9, 10, 170, rounds=4, rest=1)
    asked = [ramp(epoch) for epoch in range(200)]
    changes = [epoch for epoch in range(1, 200) if asked[epoch] != asked[epoch - 1]]
    assert changes == [10, 30, 50, 70, 90, 110, 130, 150, 170]


@pytest.mark.parametrize("setting", ["rounds", "rest"])
def test_phases_without_rounds_are_refused(setting):
    with pytest.raises(ValueError, match=f"{setting} must be at least 1, got 0"):
        Phases(0.9, 10, 170, **{setting: 0})


def test_the_constant_ramp_jumps_at_its_start():
    ramp = Constant(final=0.8, start=3)
    assert [ramp(step) for step in range(5)] == [0.0, 0.0, 0.0, 0.8, 0.8]


def test_the_constant_ramp_from_step_zero_asks_for_everything_before_the_first_step():
    assert Constant(final=0.8)(0) == 0.8


# ---------------------------------------------------------------- moments


@pytest.mark.parametrize(
    ("moment", "total", "step"),
    [
        (0, 100, 0),
        (7, 100, 7),
        (100, 100, 100),
        (250, 100, 250),  # a step beyond the run: the ramp is asked about that, not the moment
        (1, 100, 1),  # an int is a step ...
        (1.0, 100, 100),  # ... a float a fraction
        (0.0, 100, 0),
        (0.5, 100, 50),
        (5 / 160, 160 * 352, 5 * 352),
        (0.05, 100 * 5005, 5 * 5005),
        (0.5, 3, 2),  # half a step counts as one
        (0.49, 3, 1),
    ],
)
def test_a_float_is_a_fraction_of_the_run_and_an_int_a_step(moment, total, step):
    assert step_of(moment, total, "start") == step


@pytest.mark.parametrize("moment", [True, "5", None, 3 + 0j])
def test_a_moment_that_is_no_number_is_refused(moment):
    with pytest.raises(TypeError) as error:
        step_of(moment, 100, "start")
    assert str(error.value) == (
        f"start must be a fraction of the run (float) or a step (int), got {moment!r} of type "
        f"{type(moment).__name__}"
    )


def test_a_negative_step_is_refused():
    with pytest.raises(ValueError, match=r"^end must not be negative, got step -1$"):
        step_of(-1, 100, "end")


@pytest.mark.parametrize("moment", [1.5, 80.0, -0.25, math.nan])
def test_a_fraction_outside_the_run_is_refused(moment):
    with pytest.raises(
        ValueError, match=r"^end as a fraction of the run must lie between 0\.0 and 1\.0, got "
    ):
        step_of(moment, 100, "end")


def test_a_step_written_as_a_float_is_told_to_be_a_whole_number():
    with pytest.raises(ValueError) as error:
        step_of(80.0, 100, "end")
    assert str(error.value) == (
        "end as a fraction of the run must lie between 0.0 and 1.0, got 80.0 (a step? write the whole number 80)"
    )


# ---------------------------------------------------------------- resolving


def resolve(ramp, *, sparsity=0.9, start=5, end=80, total_steps=160):
    return resolve_ramp(ramp, sparsity=sparsity, start=start, end=end, total_steps=total_steps)


def test_a_name_becomes_the_ramp_with_target_and_moments():
    assert resolve("cubic") == Cubic(0.9, 5, 80)
    assert resolve("linear") == Linear(0.9, 5, 80)
    assert resolve("constant") == Constant(0.9, 5, 80)


def test_a_users_function_is_taken_as_it_is():
    def staircase(step):
        return min(0.9, 0.3 * (step // 10))

    assert resolve(staircase) is staircase


def test_a_ramp_may_reach_the_target_at_the_very_last_step():
    assert resolve("cubic", end=160)(159) < 0.9


@pytest.mark.parametrize("name", ["cubic", "linear"])
@pytest.mark.parametrize("end", [5, 4])
def test_a_ramp_needs_a_step_to_rise_in(name, end):
    with pytest.raises(ValueError) as error:
        resolve(name, end=end)
    assert str(error.value) == (
        f"the {name} ramp has no step to rise in: it starts at step 5 and ends at step {end} of 160; "
        "give more total_steps, or a later end"
    )


def test_the_constant_ramp_needs_no_step_to_rise_in():
    assert resolve("constant", start=5, end=5)(5) == 0.9


def test_a_ramp_that_outlasts_the_run_is_refused_with_what_would_be_reached():
    with pytest.raises(ValueError) as error:
        resolve("linear", start=0, end=80, total_steps=40)
    assert str(error.value) == (
        "the ramp ends at step 80 but the run stops at step 40: sparsity would stop at 0.45 of 0.9; "
        "let it end earlier or give more total_steps"
    )


def test_a_users_function_that_falls_short_is_refused():
    with pytest.raises(ValueError) as error:
        resolve(lambda step: 0.5)
    assert str(error.value) == (
        "the ramp has not reached the target at step 160: sparsity would stop at 0.5 of 0.9; "
        "let it end earlier or give more total_steps"
    )


@pytest.mark.parametrize("first", [-0.1, 1.0, 90.0, math.nan])
def test_a_users_function_must_start_as_a_sparsity(first):
    with pytest.raises(ValueError) as error:
        resolve(lambda step: 0.9 if step else first)
    assert (
        str(error.value) == f"the ramp must stay at or above 0 and below 1, but asks for {first!r} at step 0"
    )


def test_an_unknown_name_is_answered_with_the_nearest_one():
    with pytest.raises(LookupError) as error:
        resolve("cubik")
    assert (
        str(error.value)
        == "unknown ramp 'cubik'; did you mean 'cubic'? (known: constant, cubic, linear, phases)"
    )


def test_something_that_is_neither_name_nor_function_is_refused():
    with pytest.raises(TypeError) as error:
        resolve(0.9)
    assert (
        str(error.value)
        == "ramp must be a name (constant, cubic, linear, phases) or a function of the step, got 0.9"
    )


@pytest.mark.parametrize(
    ("method", "ramp"),
    [
        ("st3", Cubic(0.9, 50, 800)),  # epochs 5 to 80 of 160
        ("gmp", Cubic(0.9, 50, 800)),
        ("probmask", Cubic(0.9, 256, 960)),  # 0.16 to 0.6 of the run
        ("dnw", Constant(0.9, 0, 800)),
        ("acdc", Phases(0.9, 160, 1360, rounds=7, rest=2)),
    ],
)
def test_a_method_has_the_ramp_of_its_authors_if_nothing_is_said(method, ramp):
    model = nn.Linear(20, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert st3.sparsify(model, optimizer, sparsity=0.9, total_steps=1600, method=method).ramp == ramp
