"""Where pixels lie: what a change of layout may take as whole squares."""

import numpy as np
import pytest

from st3.engine.layout import Border, Field, Strides, best_geometry, gather_index, squares_of


@pytest.mark.parametrize("lanes", [4, 16])
def test_squares_are_runs_of_the_source_in_every_lane_and_do_not_overlap(lanes):
    field = Field.of((1, 1, 77, 91), best_geometry(1, 77, 91, lanes), Border(1, 3, 2, 1), lanes)
    index = gather_index(field, Strides(0, 0, 91, 1)).reshape(-1, lanes)
    begins = np.flatnonzero(squares_of(index))
    assert len(begins) > len(index) // lanes // 4
    assert (np.diff(begins) >= lanes).all()
    assert begins[-1] + lanes < len(index)
    for first in begins:
        square = index[first : first + lanes]
        runs = square[0] + np.arange(lanes)[:, None]
        np.testing.assert_array_equal(square, np.where(square[0] < 0, -1, runs))
