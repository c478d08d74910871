"""Fair rounding: whole numbers of weights per layer that add up to the total."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from st3.core.budget.rounding import apportion


@pytest.mark.parametrize(
    ("ideal", "total", "most", "expected"),
    [
        ([1.5, 2.5, 3.0], 7, [10, 10, 10], [2, 2, 3]),  # equal remainders: the first one
        ([1.2, 2.7, 3.1], 7, [10, 10, 10], [1, 3, 3]),  # the largest remainder
        ([1.2, 2.7, 3.4], 7, [10, 2, 10], [1, 2, 4]),  # ... unless its layer has no more
        ([5.0, 5.0], 10, [10, 3], [7, 3]),
        ([0.0, 0.0], 0, [5, 5], [0, 0]),
        ([9.0, 9.0], 3, [9, 9], [2, 1]),
        ([0.3], 1, [1], [1]),
    ],
)
def test_whole_numbers_by_hand(ideal, total, most, expected):
    assert apportion(ideal, total, most) == expected


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**6)), min_size=1, max_size=20), st.floats(0, 1)
)
def test_whole_numbers_add_up_and_stay_within_their_limits(pairs, share):
    ideal, most = [i for i, _ in pairs], [m for _, m in pairs]
    total = int(share * sum(most))
    counts = apportion(ideal, total, most)
    assert sum(counts) == total
    assert all(0 <= count <= limit for count, limit in zip(counts, most, strict=True))


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20), st.floats(0, 1))
def test_a_common_share_is_rounded_up_or_down_and_no_further(weights, share):
    total = int(share * sum(weights))
    ideal = [total / sum(weights) * w for w in weights]
    for count, value in zip(apportion(ideal, total, weights), ideal, strict=True):
        assert abs(count - value) < 1 + 1e-6


def test_more_than_there_is_cannot_be_shared():
    with pytest.raises(ValueError) as error:
        apportion([3.0, 3.0], 7, [3, 3])
    assert str(error.value) == "7 weights are to be zeroed, but the layers can lose only 6 together"
