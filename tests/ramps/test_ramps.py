"""Ramps: the paper's numbers, times as fractions of the run, and what is refused."""

import math

import pytest
import torch
from torch import nn

import st3
from st3.core.budget.plan import Plan
from st3.core.budget.ramp import Progress, resolve_ramp, step_at
from st3.ramps import Constant, Cubic, Linear, Phases

# Progress at the *start* of an epoch, by the authors' program: what holds after all steps of the epochs before it.
EPOCHS = (5, 6, 10, 14, 20, 30, 40, 50, 60, 70, 80)
CIFAR = (0, 0.039469, 0.186963, 0.318528, 0.488, 0.703704, 0.848296, 0.936, 0.981037, 0.997630, 1)
IMAGENET = (0, 0.065196, 0.297668, 0.488, 0.703704, 0.912209, 0.989026, 1, 1, 1, 1)


def shares(ramp, total_steps, steps=None):
    return [ramp.share(step, total_steps) for step in (range(total_steps + 1) if steps is None else steps)]


# ---------------------------------------------------------------- published and worked numbers


@pytest.mark.parametrize("steps_per_epoch", [1, 352], ids=["1 step per epoch", "352 steps per epoch"])
@pytest.mark.parametrize(
    ("end", "published"), [pytest.param(80, CIFAR, id="5-80"), pytest.param(50, IMAGENET, id="5-50")]
)
def test_the_cubic_ramp_has_the_published_values_at_the_start_of_epochs(end, published, steps_per_epoch):
    ramp = Cubic(start=5 / 160, end=end / 160)
    found = shares(ramp, 160 * steps_per_epoch, [epoch * steps_per_epoch for epoch in EPOCHS])
    assert tuple(round(share, 6) for share in found) == published


def test_the_cubic_ramp_is_the_programs_formula_at_every_batch():
    """c = 1 - (1 - k / ((e1 - e0) B))^3 after batch `b` of epoch `e`, k = (e - e0) B + b + 1."""
    first, last, epochs, batches = 2, 5, 7, 4
    ramp = Cubic(start=first / epochs, end=last / epochs)
    for epoch in range(epochs):
        for batch in range(batches):
            k = (epoch - first) * batches + batch + 1
            progress = 0.0 if epoch < first else 1.0 if epoch >= last else k / ((last - first) * batches)
            done = epoch * batches + batch + 1  # optimizer steps after this batch
            assert ramp.share(done, epochs * batches) == pytest.approx(1 - (1 - progress) ** 3, abs=1e-15)


def test_the_cubic_ramp_is_zero_up_to_its_first_epoch_and_full_right_after_its_last_batch():
    batches, total = 352, 160 * 352
    ramp = Cubic()
    assert shares(ramp, total, [5 * batches, 80 * batches]) == [0.0, 1.0]
    assert ramp.share(5 * batches + 1, total) > 0.0
    assert ramp.share(80 * batches - 1, total) < 1.0


def test_small_cubic_numbers_by_hand():
    assert shares(Cubic(start=0.25, end=0.5), 8) == [0.0, 0.0, 0.0, 0.875, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_small_linear_numbers_by_hand():
    assert shares(Linear(start=0.25, end=0.75), 8) == [0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_the_constant_ramp_jumps_at_its_start():
    assert shares(Constant(start=0.5), 4) == [0.0, 0.0, 1.0, 1.0, 1.0]


def test_the_constant_ramp_asks_for_everything_before_the_first_step():
    assert shares(Constant(), 2) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("steps_per_epoch", [1, 7])
def test_the_phases_are_acdcs_for_imagenet(steps_per_epoch):
    """Pruned at 10, 20, ..., 70 and 85 of 100 epochs, restored at 15, ..., 65 and 75."""
    asked = shares(Phases(start=0.1, end=0.85), 100 * steps_per_epoch)
    changes = [step / steps_per_epoch for step in range(1, len(asked)) if asked[step] != asked[step - 1]]
    assert changes == [10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 85]
    assert (asked[0], asked[-1]) == (0.0, 1.0)


def test_the_phases_are_acdcs_for_cifar():
    asked = shares(Phases(start=10 / 200, end=170 / 200, rounds=4, rest=1), 200)
    changes = [epoch for epoch in range(1, 200) if asked[epoch] != asked[epoch - 1]]
    assert changes == [10, 30, 50, 70, 90, 110, 130, 150, 170]


@pytest.mark.parametrize("number", [0, 1.5])
@pytest.mark.parametrize("setting", ["rounds", "rest"])
def test_phases_without_rounds_are_refused(setting, number):
    with pytest.raises(ValueError, match=f"^{setting} must be a whole number of at least 1, got {number}$"):
        Phases(**{setting: number})


# ---------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("time", "total", "step"),
    [
        (0, 100, 0),
        (1, 100, 100),  # a whole number is a fraction as well
        (1.0, 100, 100),
        (0.5, 100, 50),
        (5 / 160, 160 * 352, 5 * 352),
        (0.05, 100 * 5005, 5 * 5005),
        (0.5, 3, 2),  # half a step counts as one
        (0.49, 3, 1),
    ],
)
def test_a_time_is_a_fraction_of_the_run(time, total, step):
    assert step_at(time, total) == step


@pytest.mark.parametrize("total", [7, 160, 1000, 56_320])
def test_a_step_divided_by_the_length_of_the_run_is_that_step(total):
    assert [step_at(step / total, total) for step in range(0, total + 1, 7)] == list(range(0, total + 1, 7))


@pytest.mark.parametrize("kind", [Cubic, Linear, Phases])
@pytest.mark.parametrize("total", [1, 40])
def test_the_number_1_and_the_number_1_point_0_are_the_same_end(kind, total):
    assert kind(end=1) == kind(end=1.0)
    assert shares(kind(end=1), total) == shares(kind(end=1.0), total)


EVERY_TIME = [(kind, name) for kind in (Cubic, Linear, Phases) for name in ("start", "end")] + [
    (Constant, "start")
]
every_time = pytest.mark.parametrize(
    ("kind", "name"), EVERY_TIME, ids=[f"{k.__name__}-{n}" for k, n in EVERY_TIME]
)


@every_time
@pytest.mark.parametrize("time", [2, 80, 1.5, 500.0, math.inf])
def test_a_number_above_1_is_refused_with_what_to_divide_by(kind, name, time):
    with pytest.raises(ValueError) as error:
        kind(**{name: time})
    assert str(error.value) == (
        f"{name} is a fraction of the run, from 0 to 1, got {time!r}: divide steps by total_steps, epochs by the "
        f"epochs of the run"
    )


@every_time
@pytest.mark.parametrize("time", [-1, -0.25, math.nan])
def test_a_time_before_the_run_is_refused(kind, name, time):
    with pytest.raises(ValueError) as error:
        kind(**{name: time})
    assert str(error.value) == f"{name} is a fraction of the run, from 0 to 1, got {time!r}"


@every_time
@pytest.mark.parametrize("time", [True, "5", None, 3 + 0j])
def test_a_time_must_be_a_number(kind, name, time):
    with pytest.raises(TypeError) as error:
        kind(**{name: time})
    assert str(error.value) == f"{name} must be a fraction of the run, a number from 0 to 1, got {time!r}"


@pytest.mark.parametrize("kind", [Cubic, Linear, Phases])
@pytest.mark.parametrize("end", [0.25, 0.5])
def test_an_end_that_does_not_come_after_the_start_is_refused(kind, end):
    with pytest.raises(ValueError) as error:
        kind(start=0.5, end=end)
    assert str(error.value) == f"end must come after start, got start=0.5 and end={end}"


# ---------------------------------------------------------------- resolving


def test_a_name_becomes_the_ramp_with_the_usual_times():
    assert resolve_ramp("cubic") == Cubic(5 / 160, 0.5)
    assert resolve_ramp("cubic", (0.16, 0.6)) == Cubic(0.16, 0.6)
    assert resolve_ramp("linear", (0.0, 0.5)) == Linear(0.0, 0.5)


@pytest.mark.parametrize("times", [None, (0.16, 0.6)])
def test_the_names_of_ramps_with_times_of_their_own_ignore_the_methods(times):
    assert resolve_ramp("constant", times) == Constant(0.0)
    assert resolve_ramp("phases", times) == Phases(0.1, 0.85, rounds=7, rest=2)


def test_a_ramp_object_is_taken_as_it_is():
    ramp = Cubic(start=0.2, end=0.3)
    assert resolve_ramp(ramp, (0.0, 0.5)) is ramp


def test_a_users_function_gets_the_progress_of_the_run():
    seen = []

    def staircase(progress):
        seen.append(progress)
        return min(1.0, math.floor(4 * progress) / 3)

    ramp = resolve_ramp(staircase)
    assert ramp == Progress(staircase)
    assert shares(ramp, 8, [0, 2, 4, 8]) == [0.0, pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]
    assert seen == [0.0, 0.25, 0.5, 1.0]


def test_an_unknown_name_is_answered_with_the_nearest_one():
    with pytest.raises(LookupError) as error:
        resolve_ramp("cubik")
    assert (
        str(error.value)
        == "unknown ramp 'cubik'; did you mean 'cubic'? (known: constant, cubic, linear, phases)"
    )


@pytest.mark.parametrize("thing", [0.9, Cubic, None])
def test_something_that_is_neither_name_nor_ramp_nor_function_is_refused(thing):
    with pytest.raises(TypeError) as error:
        resolve_ramp(thing)
    assert str(error.value) == (
        "ramp must be a name (constant, cubic, linear, phases), an object such as st3.ramps.Cubic(start=0.1, end=0.5), "
        "or a function of the progress of the run, 0 to 1, that returns a part of the target, 0 to 1; got "
        f"{thing!r}"
    )


@pytest.mark.parametrize(
    ("method", "ramp"),
    [
        ("st3", Cubic(5 / 160, 0.5)),
        ("gmp", Cubic(5 / 160, 0.5)),
        ("feather", Cubic(0.0, 0.5)),
        ("probmask", Cubic(0.16, 0.6)),
        ("dnw", Constant()),
        ("rigl", Constant()),
        ("acdc", Phases(0.1, 0.85, rounds=7, rest=2)),
        (st3.methods.ACDC(warm_up=0.05, rounds=4, rest=1), Phases(0.05, 0.85, rounds=4, rest=1)),
    ],
    ids=str,
)
def test_a_method_has_the_ramp_of_its_authors_by_default(method, ramp):
    assert attach(method=method).ramp == ramp


@pytest.mark.parametrize(
    ("method", "times"), [("st3", (5 / 160, 0.5)), ("feather", (0.0, 0.5)), ("probmask", (0.16, 0.6))]
)
@pytest.mark.parametrize(("name", "kind"), [("cubic", Cubic), ("linear", Linear)])
def test_a_ramp_by_name_takes_the_usual_times_of_the_method(method, times, name, kind):
    assert attach(method=method, ramp=name).ramp == kind(*times)


def attach(**choice):
    torch.manual_seed(0)
    model = nn.Linear(20, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return st3.sparsify(model, optimizer, **{"sparsity": 0.9, "total_steps": 1600, **choice})


@pytest.mark.parametrize("method", ["st3", "feather", "gmp", "soft"])
def test_a_constant_ramp_by_name_is_sparse_before_the_first_step(method):
    sparsifier = attach(method=method, ramp="constant")
    assert sparsifier.step == 0
    assert sparsifier.report().zeros == int(199 * 0.9) + 1
    assert sparsifier.asked() == 0.9


# ---------------------------------------------------------------- what a ramp asks for in a plan


def plan(ramp, *, sparsity=0.9, total_steps=160):
    return Plan(sparsity, resolve_ramp(ramp), st3.allocations.Global(), total_steps=total_steps)


def test_the_sparsity_asked_for_is_a_part_of_the_target():
    linear = plan(Linear(start=0.0, end=0.5), sparsity=0.8)
    assert [linear.asked(step) for step in (0, 20, 40, 80, 160)] == [0.0, 0.2, 0.4, 0.8, 0.8]


def test_after_the_end_of_the_run_the_target_stays():
    assert plan(lambda progress: 1.0 if progress == 1.0 else 0.0).asked(10**6) == 0.9


def test_a_ramp_may_reach_the_target_at_the_very_last_step():
    last = plan(Cubic(end=1.0))
    last.check_ramp()
    assert last.asked(159) < 0.9
    assert last.is_reached(160)


@pytest.mark.parametrize("short", [1 - 1e-12, 1 + 1e-12], ids=["just below", "just above"])
def test_the_last_rounding_error_of_a_ramp_costs_no_weight(short):
    """Of 101 weights the 91st lies exactly at 0.9: a sparsity of 0.9 - 1e-12 asks for one zero fewer."""
    rounded = plan(lambda progress: short if progress == 1.0 else 0.0)
    rounded.check_ramp()
    assert rounded.asked(160) == 0.9

    torch.manual_seed(0)
    model = nn.Linear(101, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.9, total_steps=2, ramp=lambda p: p and short)
    for _ in range(2):
        model(torch.ones(1, 101)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert int((model.weight == 0).sum()) == 91
    assert sparsifier.at_target
    sparsifier.finalize()


def test_a_ramp_that_falls_short_is_refused_with_what_would_be_reached():
    with pytest.raises(ValueError) as error:
        plan(lambda progress: 0.5).check_ramp()
    assert "has not reached the target at the end of the run, step 160" in str(error.value)
    assert str(error.value).endswith("sparsity would stop at 0.45 of 0.9; let it end earlier")


@pytest.mark.parametrize("first", [-0.1, 1.1, 90.0, math.nan])
def test_a_function_must_return_a_part_of_the_target(first):
    with pytest.raises(ValueError) as error:
        plan(lambda progress: 1.0 if progress else first).check_ramp()
    assert str(error.value).startswith("a ramp asks for a part of the target, from 0 to 1, but ")
    assert str(error.value).endswith(f"asks for {first!r} at step 0 of 160")
