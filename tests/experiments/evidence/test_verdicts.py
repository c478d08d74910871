"""Verdicts by the spread over seeds, with hand-made points."""

from dataclasses import replace

import pytest

from st3.experiments.evidence.points import Point
from st3.experiments.evidence.verdicts import Better, Claim, NoBetter, judge


def curve(method, accuracies, macs=100):
    """Return points from {sparsity: accuracies of the seeds}."""
    return [
        Point("ours", method, "net", "data", sparsity, accuracy, macs, seed)
        for sparsity, values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]


def answer(points, *comparisons):
    return judge(Claim("x", comparisons), points).answer


CLEAR = curve("a", {0.9: [0.80, 0.81, 0.82]}) + curve("b", {0.9: [0.70, 0.71, 0.72]})
CLOSE = curve("a", {0.9: [0.80, 0.81, 0.82]}) + curve("b", {0.9: [0.795, 0.805, 0.825]})


def test_a_difference_of_many_standard_errors_is_told_apart():
    assert answer(CLEAR, Better("a", "b")) == "holds"
    assert answer(CLEAR, Better("b", "a")) == "does not hold"


def test_a_difference_within_the_spread_cannot_be_told():
    assert (
        answer(CLOSE, Better("a", "b")) == answer(CLOSE, Better("b", "a")) == "cannot be told at this budget"
    )


def test_the_limit_is_two_standard_errors_of_the_pooled_spread():
    # Two seeds each, deviation 0.01 * sqrt(2) / 2 * ... : values 0 and 0.02 have a standard deviation of 0.014142,
    # so the standard error of the difference is 0.014142 * sqrt(1/2 + 1/2) = 0.014142, twice that 0.028284.
    def pair(difference):
        return curve("a", {0.9: [0.5 + difference, 0.52 + difference]}) + curve("b", {0.9: [0.5, 0.52]})

    assert answer(pair(0.0283), Better("a", "b")) == "holds"
    assert answer(pair(0.0282), Better("a", "b")) == "cannot be told at this budget"


def test_points_of_one_seed_are_not_independent():
    def pair(difference):
        seeds = {s: [s / 2, s / 2 + 0.02] for s in (0.9, 0.95, 0.98)}  # the second seed is better everywhere
        shifted = {s: [accuracy + difference for accuracy in values] for s, values in seeds.items()}
        return curve("a", shifted) + curve("b", seeds)

    # The limit is that of one sparsity, 0.028284: three of them say no more.
    assert answer(pair(0.0283), Better("a", "b")) == "holds"
    assert answer(pair(0.0282), Better("a", "b")) == "cannot be told at this budget"


def test_points_at_other_sparsities_do_not_hide_the_spread():
    points = curve("a", {0.99: [0.5, 0.6]}) + curve("b", {0.99: [0.4, 0.5]})
    steady = curve("c", {s / 100: [0.9, 0.9, 0.9] for s in range(20, 98)})
    assert answer(points + steady, Better("a", "b")) == "cannot be told at this budget"


def test_a_curve_with_a_seed_missing_counts_as_its_thinnest_point():
    thick, thin = (
        curve("a", {0.9: [0.5, 0.52], 0.95: [0.5, 0.52]}),
        curve("b", {0.9: [0.4, 0.42], 0.95: [0.4]}),
    )
    text = judge(Claim("x", [Better("a", "b")]), thick + thin).numbers
    assert text == "a - b: +10.50 ± 3.46 points at 90, 95 %"  # 2 * 0.014142 * sqrt(1/2 + 1/1)


def test_one_seed_borrows_the_spread_of_the_others():
    single = curve("a", {0.99: [0.5]}) + curve("b", {0.99: [0.4]})
    assert answer(single, Better("a", "b")) == "cannot be told at this budget"
    spread = curve("c", {0.9: [0.80, 0.81]})
    assert answer(single + spread, Better("a", "b")) == "holds"


def test_sparsities_below_80_per_cent_count_only_if_named():
    points = curve("a", {0.5: [0.9, 0.9], 0.9: [0.1, 0.11]}) + curve("b", {0.5: [0.1, 0.1], 0.9: [0.8, 0.81]})
    assert answer(points, Better("b", "a")) == "holds"
    assert answer(points, Better("a", "b", at=(0.5,))) == "holds"


def test_a_curve_of_cycles_is_interpolated_on_the_log_axis():
    cycles = curve("cycles", {0.6: [0.90, 0.90], 0.8: [0.80, 0.80], 0.9: [0.70, 0.71], 0.95: [0.60, 0.60]})
    verdict = judge(Claim("x", [Better("once", "cycles")]), cycles + curve("once", {0.85858: [0.9, 0.9]}))
    # log(1 - 0.8586) lies half-way between log 0.2 and log 0.1: (0.80 + 0.705) / 2 = 0.7525
    assert verdict.answer == "holds"
    assert verdict.numbers.startswith("once - cycles: +14.7")


def test_one_common_sparsity_does_not_hide_the_others():
    cycles = curve("cycles", {0.8: [0.80, 0.80], 0.9: [0.70, 0.71], 0.95: [0.60, 0.60]})
    once = curve("once", {0.85858: [0.9, 0.9], 0.95: [0.5, 0.5]})
    verdict = judge(Claim("x", [Better("once", "cycles")]), cycles + once)
    assert verdict.numbers.endswith("at 85.86, 95 %")


def test_no_better_needs_the_margin_and_two_standard_errors():
    assert answer(CLEAR, NoBetter("b", "a", margin=0.01)) == "holds"
    assert answer(CLEAR, NoBetter("a", "b", margin=0.01)) == "does not hold"
    assert answer(CLOSE, NoBetter("a", "b", margin=0.05)) == "holds"
    assert answer(CLOSE, NoBetter("a", "b", margin=0.005)) == "cannot be told at this budget"


def test_multiply_adds_are_compared_as_a_ratio():
    points = curve("few", {0.9: [0.5]}, macs=50) + curve("many", {0.9: [0.5]}, macs=100)
    assert answer(points, Better("few", "many", macs=True)) == "holds"
    assert answer(points, Better("many", "few", macs=True)) == "does not hold"
    verdict = judge(Claim("x", [Better("few", "many", macs=True)]), points)
    assert verdict.numbers == "few has 0.50 times the MACs of many at 90 %"
    points += curve("more", {0.8: [0.5, 0.5], 0.95: [0.4, 0.4]})  # multiply-adds are not interpolated
    assert judge(Claim("x", [Better("few", "more", macs=True)]), points).numbers == "few and more never meet"


def test_a_claim_with_several_parts_is_as_good_as_its_worst():
    parts = (Better("a", "b"), Better("a", "missing"))
    verdict = judge(Claim("x", parts), CLEAR)
    assert verdict.answer == "cannot be told at this budget"
    assert verdict.numbers.endswith("no runs of missing")
    assert answer(CLEAR, Better("b", "a"), Better("a", "missing")) == "does not hold"


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_numbers_name_difference_error_and_sparsities(seeds):
    points = curve("a", {0.9: [0.81, 0.82, 0.80][:seeds]}) + curve("b", {0.9: [0.71, 0.72, 0.70][:seeds]})
    text = judge(Claim("x", [Better("a", "b")]), points).numbers
    assert text == (
        "a - b: +10.00 points at 90 %, one seed" if seeds == 1 else "a - b: +10.00 ± 1.63 points at 90 %"
    )


def test_fewer_bits_per_character_are_better():
    bits = [replace(point, score=4 * point.score, task="language") for point in CLEAR]
    assert answer(bits, Better("b", "a")) == "holds"
    verdict = judge(Claim("x", [Better("a", "b")]), bits)
    assert verdict.answer == "does not hold"
    assert verdict.numbers.startswith("b - a: -0.400 ± 0.065 bits per character at 90 %")
