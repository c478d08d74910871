"""Threshold operators and the filter rescale, number by number, on a worked example."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from st3.core.operators import bounded_scale, exact_scale, feather, hard, keep_above, soft

# Two filters of four weights; at sparsity 0.5 the threshold is 0.15, halfway between 0.1 and 0.2.
W = tensor([[0.5, -0.4, 0.1, 0.05], [0.3, -0.2, 0.02, 0.01]])
HALF_SPARSE = 0.15
THREE_QUARTERS_SPARSE = 0.325

OPERATORS = {
    "soft": soft,
    "hard": hard,
    "feather": lambda raw, threshold, out=None: feather(raw, threshold, 3.0, out=out),
}
every_operator = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
every_threshold = pytest.mark.parametrize("threshold", [0.15, tensor(0.15)], ids=["number", "tensor"])

LARGE = 2.0**100  # about 1e30
magnitudes = st.floats(0.0, LARGE, width=32, allow_subnormal=False)
weights = st.lists(st.floats(-LARGE, LARGE, width=32, allow_subnormal=False), min_size=1, max_size=30).map(
    lambda values: tensor(values, dtype=torch.float32)
)


def means(values):
    return values.mean(1, keepdim=True)


def close(found, expected, digits=6):
    torch.testing.assert_close(found, tensor(expected), rtol=0, atol=0.5 * 10**-digits)


# ---------------------------------------------------------------- worked numbers


@every_threshold
def test_soft_shrinks_by_the_threshold(threshold):
    close(soft(W, threshold), [[0.35, -0.25, 0, 0], [0.15, -0.05, 0, 0]])


@every_threshold
def test_hard_keeps_what_lies_above_the_threshold_bit_for_bit(threshold):
    assert torch.equal(hard(W, threshold), tensor([[0.5, -0.4, 0, 0], [0.3, -0.2, 0, 0]]))


@every_threshold
def test_feather_of_power_three(threshold):
    close(
        feather(W, threshold, 3.0), [[0.4954589, -0.3928414, 0, 0], [0.2869397, -0.1666111, 0, 0]], digits=7
    )


def test_the_scales_of_the_worked_example():
    scale = bounded_scale(means(W.abs()), means(keep_above(W.abs(), HALF_SPARSE)))
    torch.testing.assert_close(scale, tensor([[1.1647439], [1.0593702]]), rtol=0, atol=2e-7)


def test_the_scale_of_an_empty_filter_of_the_worked_example():
    scale = bounded_scale(means(W.abs()), means(keep_above(W.abs(), THREE_QUARTERS_SPARSE)))
    torch.testing.assert_close(scale, tensor([[1.1647439], [100.92383]]), rtol=2e-7, atol=0)


def test_st3_is_soft_times_scale():
    scale = bounded_scale(means(W.abs()), means(keep_above(W.abs(), HALF_SPARSE)))
    close(
        scale * soft(W, HALF_SPARSE),
        [[0.4076604, -0.2911860, 0, 0], [0.1589055, -0.0529685, 0, 0]],
        digits=7,
    )


def test_hard_with_rescale():
    scale = bounded_scale(means(W.abs()), means(keep_above(W.abs(), HALF_SPARSE)))
    expected = [[0.5823720, -0.4658976, 0, 0], [0.3178111, -0.2118740, 0, 0]]
    close(scale * hard(W, HALF_SPARSE), expected, digits=7)


# ---------------------------------------------------------------- every operator


@every_operator
@every_threshold
def test_a_weight_at_the_threshold_is_zeroed(operator, threshold):
    raw = tensor([0.15, -0.15])
    assert torch.equal(operator(raw, threshold), torch.zeros(2))


@every_operator
def test_a_weight_just_above_the_threshold_stays_active(operator):
    """Otherwise the zeros would be more than were asked for, without a tie."""
    for threshold in torch.linspace(0.1, 0.9, 101).tolist():
        threshold = tensor(threshold).item()  # a float32 number
        above = torch.nextafter(tensor(threshold), tensor(math.inf))
        found = operator(torch.stack([above, -above]), threshold)
        assert found[0] > 0, threshold
        assert found[1] < 0, threshold


@every_operator
@given(raw=weights, threshold=magnitudes)
def test_zeros_are_exactly_zero_and_signs_stay(operator, raw, threshold):
    found = operator(raw, threshold)
    zeroed = raw.abs() <= threshold
    assert torch.equal(found[zeroed], torch.zeros(int(zeroed.sum())))
    assert torch.equal(found[~zeroed].sign(), raw[~zeroed].sign())


@every_operator
@given(raw=weights, threshold=magnitudes)
def test_no_magnitude_grows(operator, raw, threshold):
    assert bool((operator(raw, threshold).abs() <= raw.abs()).all())


@every_operator
def test_at_threshold_zero_nothing_changes(operator):
    raw = tensor([0.5, -0.25, 0.0, 1e-30, -1e30])
    assert torch.equal(operator(raw, 0.0), raw)


@every_operator
@every_threshold
def test_the_result_may_go_into_a_given_tensor_and_the_raw_weight_stays(operator, threshold):
    raw, out = W.clone(), torch.full_like(W, 7.0)
    returned = operator(raw, threshold, out=out)
    assert returned is out
    assert torch.equal(out, operator(W, threshold))
    assert torch.equal(raw, W)


@every_operator
@every_threshold
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_precision_of_the_weight_is_kept(operator, threshold, dtype):
    found = operator(tensor([0.5, -0.25, 0.125], dtype=dtype), threshold)
    assert found.dtype == dtype
    assert (found == 0).tolist() == [False, False, True]


@every_operator
def test_an_empty_weight_stays_empty(operator):
    assert operator(torch.empty(0, 4), 0.5).shape == (0, 4)


# ---------------------------------------------------------------- soft


def test_soft_never_turns_a_sign_as_a_stale_mask_would():
    """(w - sign(w) * th) * m with m = 1 gives -0.05 and 0.05 here."""
    assert soft(tensor([0.05, -0.05]), 0.1).tolist() == [0.0, 0.0]


def test_soft_leaves_no_negative_zero():
    found = soft(tensor([-0.05, -0.1, -0.0, 0.0, 0.05]), 0.1)
    assert not torch.signbit(found).any()


def test_soft_is_continuous_at_the_threshold():
    step = 2.0**-20
    assert soft(tensor([0.5 + step, -0.5 - step]), 0.5).tolist() == [step, -step]


# ---------------------------------------------------------------- feather


def test_feather_of_power_one_is_soft_exactly_on_binary_fractions():
    raw = tensor([2.0, -1.0, 0.5, -0.25, 0.125, -0.0625, 0.0])
    assert torch.equal(feather(raw, 0.125, 1.0), soft(raw, 0.125))


@given(raw=weights, threshold=magnitudes)
def test_feather_of_power_one_is_soft_up_to_rounding(raw, threshold):
    error = (feather(raw, threshold, 1.0) - soft(raw, threshold)).abs()
    assert bool((error <= 4 * torch.finfo(torch.float32).eps * raw.abs()).all())


def test_feather_of_a_large_power_is_almost_hard():
    raw = tensor([0.5, -0.4, 0.22, -0.19, 0.1])
    found = feather(raw, 0.2, 500.0)
    torch.testing.assert_close(found, hard(raw, 0.2), rtol=1e-6, atol=0)
    assert found[3:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, 10.0])
def test_feather_is_its_formula(power):
    raw = torch.linspace(-2, 2, 81, dtype=torch.float64)
    formula = raw.sign() * (raw.abs() ** power - 0.7**power).clamp(min=0) ** (1 / power)
    torch.testing.assert_close(feather(raw, 0.7, power), formula, rtol=1e-12, atol=1e-12)


@every_threshold
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
def test_feather_neither_overflows_nor_underflows(threshold, scale):
    """|w|^3 and th^3 would."""
    expected = feather(W, threshold, 3.0)
    found = feather(W * scale, threshold * scale, 3.0)
    torch.testing.assert_close(found / scale, expected, rtol=1e-5, atol=0)


def test_feather_of_the_smallest_floats_is_finite():
    found = feather(tensor([1e-40, -2e-40, 1e-45]), 5e-41, 3.0)
    assert bool(torch.isfinite(found).all())
    assert (found.abs() <= 2e-40).all()
    assert found[2] == 0


# ---------------------------------------------------------------- what is kept


@every_threshold
def test_kept_zeroes_magnitudes_at_or_below_the_threshold_in_place(threshold):
    magnitude = tensor([0.5, 0.15, 0.1, 0.0, 0.16])
    returned = keep_above(magnitude, threshold)
    assert returned.data_ptr() == magnitude.data_ptr()
    assert torch.equal(magnitude, tensor([0.5, 0.0, 0.0, 0.0, 0.16]))


@given(raw=weights, threshold=magnitudes)
def test_kept_is_the_same_for_a_number_and_a_tensor(raw, threshold):
    number = keep_above(raw.abs(), threshold)
    assert torch.equal(number, keep_above(raw.abs(), tensor(threshold)))
    assert torch.equal(number > 0, raw.abs() > threshold)


# ---------------------------------------------------------------- scales

ONE_ULP = 2.0**-52


@pytest.mark.parametrize(
    ("ratio", "bounded", "exact"),
    [
        (0.0, "101", "1"),  # 1/0 would be infinite; an empty filter is 0 whatever its scale
        (0.01, "50.5", "100"),
        (0.05, "16.83", "20"),
        (0.1, "9.18", "10"),
        (0.2, "4.81", "5"),
        (0.5, "1.980", "2"),
        (0.9, "1.110", "1.111"),
        (1.0, "1", "1"),
    ],
)
def test_the_scale_of_a_filter_by_its_kept_part(ratio, bounded, exact):
    mean = tensor(1e6, dtype=torch.float64)  # large, so that the epsilon in both means is nothing

    def printed(scale, text):
        return f"{scale.item():.{len(text.partition('.')[2])}f}"

    assert printed(bounded_scale(mean, ratio * mean), bounded) == bounded
    assert printed(exact_scale(mean, ratio * mean), exact) == exact


@given(st.floats(1e-6, 1e6), st.floats(0.0, 1.0))
def test_scales_lie_between_1_and_101(mean, ratio):
    mean = tensor(mean, dtype=torch.float64)
    scale = bounded_scale(mean, ratio * mean).item()
    assert 1 - ONE_ULP <= scale <= 101.0


@given(st.floats(0.0, 1e6))
def test_a_full_filter_has_scale_1(mean):
    mean = tensor(mean, dtype=torch.float64)
    assert bounded_scale(mean, mean).item() == pytest.approx(1.0, abs=ONE_ULP)
    assert exact_scale(mean, mean).item() == 1.0


def test_an_all_zero_filter_has_a_finite_scale():
    zero = torch.zeros(3, 1)
    assert bounded_scale(zero, zero).tolist() == [[1.0]] * 3
    assert exact_scale(zero, zero).tolist() == [[1.0]] * 3


def test_an_empty_filter_of_ordinary_weights_scales_by_a_little_less_than_101():
    """1.01 / (1e-6 / (0.1 + 1e-6) + 0.01), because of the epsilon."""
    scale = bounded_scale(tensor(0.1, dtype=torch.float64), tensor(0.0, dtype=torch.float64)).item()
    assert scale == pytest.approx(1.01 / (1e-6 / 0.100001 + 0.01), rel=1e-12)
    assert 100.8 < scale < 101.0


def test_the_scales_of_many_filters_do_not_touch_their_arguments():
    mean, part = tensor([[1.0], [2.0]]), tensor([[0.5], [2.0]])
    bounded_scale(mean, part)
    exact_scale(mean, part)
    assert mean.tolist() == [[1.0], [2.0]]
    assert part.tolist() == [[0.5], [2.0]]


@pytest.mark.parametrize(
    ("sparsity", "threshold", "kept_part", "scale", "soft_part", "rescaled_part"),
    [
        (0.50, 0.6745, 0.7965, "1.252", 0.3739, 0.468),
        (0.80, 1.2816, 0.4399, "2.245", 0.1187, 0.266),
        (0.90, 1.6449, 0.2585, "3.761", 0.0524, 0.197),
        (0.95, 1.9600, 0.1465, "6.454", 0.0237, 0.153),
        (0.98, 2.3263, 0.0668, "13.15", 0.0085, 0.112),
        (0.99, 2.5758, 0.0362, "21.84", 0.0040, 0.087),
    ],
)
def test_what_soft_thresholding_and_rescale_leave_of_gaussian_weights(
    sparsity, threshold, kept_part, scale, soft_part, rescaled_part
):
    n = 1 << 20
    normal = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)  # a Gaussian, evenly drawn
    magnitude = normal.abs()
    cut = magnitude.sort().values[int(sparsity * n)].item()
    assert cut == pytest.approx(threshold, abs=6e-5)

    mean, kept_mean = magnitude.mean(), keep_above(magnitude.clone(), cut).mean()
    assert (kept_mean / mean).item() == pytest.approx(kept_part, abs=6e-5)
    factor = bounded_scale(1e6 * mean, 1e6 * kept_mean).item()
    assert factor == pytest.approx(float(scale), rel=6e-4)
    soft_mean = soft(normal, cut).abs().mean()
    assert (soft_mean / mean).item() == pytest.approx(soft_part, abs=6e-5)
    assert (factor * soft_mean / mean).item() == pytest.approx(rescaled_part, abs=6e-4)
