"""The code of positions: short, exact, and safe to decode."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from st3.files.packing import entropy_bytes
from st3.files.positions import BLOCKS, decode, encode


def test_codes_computed_by_hand():
    # Gaps 0, 2, 1 in one block take 1 + 3 + 2 bits with r = 0 and 2 + 3 + 2 with r = 1. So r = 0: 1 001 01.
    code = encode(np.array([True, False, False, True, False, True, False, False]))
    assert code.content.tolist() == [0b0000_0000, 0b1001_0100]
    # Gaps 5, 6 take fewest bits with r = 2 (5 = 1·4 + 1, 6 = 1·4 + 2): low bits 01 10, then unary 01 01.
    places = np.zeros(20, bool)
    places[[5, 12]] = True
    assert encode(places).content.tolist() == [0b0010_0000, 0b0110_0101]


@given(st.integers(0, 700), st.sampled_from([0, 0.01, 0.2, 0.5, 0.9, 0.999, 1]), st.integers(0, 99))
def test_decoding_returns_the_encoded_positions(size, share, seed):
    chosen = np.random.default_rng(seed).random(size) < share
    code = encode(chosen)
    found = decode(code.content, size, int(chosen.sum()), code.block)
    assert found.tolist() == np.flatnonzero(chosen).tolist()


def test_distant_positions_are_decoded():
    chosen = np.zeros(3_000_000, bool)
    chosen[[0, 1, 2_999_998]] = True
    code = encode(chosen)
    assert decode(code.content, chosen.size, 3, code.block).tolist() == [0, 1, 2_999_998]
    assert code.content.size < 30


@pytest.mark.parametrize("share", [0.001, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.98])
def test_random_positions_cost_at_most_4_percent_more_than_their_entropy(share):
    chosen = np.random.default_rng(0).random(400_000) < share
    bound = entropy_bytes(chosen.size, int(chosen.sum()))
    assert bound < encode(chosen).content.size < 1.04 * bound


def test_uneven_filters_cost_less_than_a_random_mask():
    random = np.random.default_rng(0)
    density = random.choice([0.01, 0.05, 0.4], size=(256, 1))
    chosen = (random.random((256, 1152)) < density).ravel()
    assert encode(chosen).content.size < 0.9 * entropy_bytes(chosen.size, int(chosen.sum()))


@given(
    arrays.arrays(np.uint8, st.integers(0, 60)),
    st.integers(0, 300),
    st.integers(-1, 301),
    st.sampled_from(BLOCKS),
)
def test_any_bytes_decode_to_ascending_positions_in_bounds_or_are_refused(code, size, count, block):
    try:
        found = decode(code, size, count, block)
    except ValueError:
        return
    assert found.size == count
    assert (np.diff(found) > 0).all()
    assert not count or (found[0] >= 0 and found[-1] < size)


def code_of(size=100, every=7):
    chosen = np.arange(size) % every == 0
    return encode(chosen).content, size, int(chosen.sum()), encode(chosen).block


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda code, size, count, block: (code[:-1], size, count, block), "incomplete"),
        (lambda code, size, count, block: (np.append(code, np.uint8(0)), size, count, block), "incomplete"),
        (lambda code, size, count, block: (code[:2], size, count, block), "too short"),
        (lambda code, size, count, block: (code, size, 10**12, block), "1,000,000,000,000 positions among 100"),
        (lambda code, size, count, block: (code, 10**12, 10**11, block), "too short"),
        (lambda code, size, count, block: (code, 90, count, block), "leads beyond 90 places"),
        (lambda code, size, count, block: (code, size, count, 7), "blocks of 7 gaps"),
        (lambda code, size, count, block: (code, size, 0, block), "too long"),
    ],
)  # fmt: skip
def test_a_code_that_does_not_fit_its_numbers_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        decode(*change(*code_of()))
