"""Squares, the parts of a layout change that are copied as whole rows and transposed."""

import numpy as np
import pytest

from st3.engine.plan.layout import NO_BORDER, Border, Field, Strides, best_geometry, gather_index, squares_of


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize(("size", "border"), [((77, 91), Border(1, 3, 2, 1)), ((64, 64), NO_BORDER)])
def test_squares_read_consecutive_floats_in_every_lane_and_do_not_overlap(lanes, size, border):
    field = Field.of((1, 1, *size), best_geometry(1, *size, lanes), border, lanes)
    index = gather_index(field, Strides(0, 0, size[1], 1)).reshape(-1, lanes)
    begins = np.flatnonzero(squares_of(index))
    assert len(begins) > len(index) // lanes // 4
    assert (np.diff(begins) >= lanes).all()
    assert begins[-1] + lanes < len(index)
    for first in begins:
        square = index[first : first + lanes]
        runs = square[0] + np.arange(lanes)[:, None]
        np.testing.assert_array_equal(square, np.where(square[0] < 0, -1, runs))
