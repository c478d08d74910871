"""The learning rate, against the authors' published values."""

from itertools import pairwise

import pytest

from st3.training.rates import ConstantRate, CosineRate, LinearRate, StepRate

EPOCH = 10  # steps


def test_the_cosine_with_warm_up_equals_the_published_scheduler():
    rate = CosineRate(warmup=5)
    values = [0.2 * rate.factor(epoch * EPOCH, EPOCH, 100) for epoch in (0, 4, 5, 50, 99)]
    assert values == pytest.approx([0.04, 0.2, 0.2, 0.108258, 5.467e-5], rel=1e-4)


def test_the_rate_changes_between_epochs_only():
    rate = CosineRate(warmup=2)
    for epoch in range(8):
        assert len({rate.factor(epoch * EPOCH + k, EPOCH, 8) for k in range(EPOCH)}) == 1


def test_by_step_the_rate_rises_and_falls_with_every_step():
    rate = CosineRate(warmup=2, by_step=True)
    values = [rate.factor(step, EPOCH, 8) for step in range(8 * EPOCH)]
    assert values[0] == pytest.approx(1 / 20)
    assert values[19] == 1.0
    assert all(a < b for a, b in pairwise(values[:20]))
    assert all(a > b for a, b in pairwise(values[20:]))
    assert 0 < values[-1] < 0.01


def test_the_rate_drops_with_the_first_step_of_an_epoch():
    rate = StepRate(drops=(80, 120))
    before, at, after = (rate.factor(step, EPOCH, 160) for step in (799, 800, 1200))
    assert (before, at, after) == pytest.approx((1.0, 0.1, 0.01))


def test_the_rate_may_drop_within_an_epoch():
    rate = StepRate(drops=(1.5,), factor_of_drop=0.5)
    assert [rate.factor(step, EPOCH, 3) for step in (14, 15)] == [1.0, 0.5]


def test_every_kind_of_rate_can_have_a_warm_up():
    assert ConstantRate(warmup=4).factor(EPOCH, EPOCH, 9) == 0.5
    assert StepRate(warmup=4, drops=(6,)).factor(EPOCH, EPOCH, 9) == 0.5


def test_scaling_keeps_the_shape():
    rate = StepRate(warmup=8, drops=(80, 120)).scaled(1 / 20)
    assert (rate.warmup, rate.drops) == (0.4, (4.0, 6.0))
    assert CosineRate(warmup=5).scaled(2).warmup == 10


def test_the_line_falls_to_zero_after_the_warm_up():
    rate = LinearRate(warmup=2, by_step=True)
    found = [rate.factor(step, 4, 10) for step in range(40)]
    assert found[:8] == [(step + 1) / 8 for step in range(8)]
    assert found[8:] == pytest.approx([1 - (step - 8) / 32 for step in range(8, 40)])
    assert rate.factor(60, 4, 10) == 0.0
