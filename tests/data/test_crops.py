"""The part of a photograph that the network sees."""

import math
from random import Random

import pytest

from st3.data.crops import central_box, largest_box, random_box, short_side_size


class Script:
    """Returns the given numbers instead of random ones."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def test_a_box_follows_from_area_shape_left_and_top():
    # Area 0.08 + 0.92 × 0.5 = 0.54 of 100 × 100, square: side √5400 = 73.48; 28 places for its left and top edge.
    assert random_box(100, 100, Script(0.5, 0.5, 0.5, 0.25)) == (14, 7, 87, 80)


def test_a_box_that_does_not_fit_is_drawn_again():
    # All of the area in the shape 4 : 3 is 115 wide. The second try is the smallest square.
    assert random_box(100, 100, Script(1.0, 1.0, 0.0, 0.5, 0.0, 0.0)) == (0, 0, 28, 28)


def test_after_ten_tries_the_largest_central_box_is_taken():
    wide = Script(*[1.0, 0.5] * 10)
    assert random_box(400, 100, wide) == (133, 0, 266, 100)
    assert wide.numbers == []


@pytest.mark.parametrize(
    ("size", "box"),
    [
        ((400, 100), (133, 0, 266, 100)),
        ((100, 400), (0, 133, 100, 266)),
        ((120, 100), (0, 0, 120, 100)),
        ((1, 1), (0, 0, 1, 1)),
    ],
)
def test_the_aspect_ratio_of_the_largest_central_box_is_between_3_to_4_and_4_to_3(size, box):
    assert largest_box(*size) == box


@pytest.mark.parametrize("size", [(500, 375), (1, 1), (3, 900), (224, 224)])
def test_boxes_lie_in_the_picture_and_cover_the_range_of_areas_and_shapes(size):
    width, height = size
    boxes = [random_box(width, height, Random(seed)) for seed in range(300)]
    assert all(
        0 <= left < right <= width and 0 <= top < bottom <= height for left, top, right, bottom in boxes
    )
    if min(size) > 200:
        areas = [(right - left) * (bottom - top) / (width * height) for left, top, right, bottom in boxes]
        assert 0.07 < min(areas) < 0.12
        assert 0.85 < max(areas) <= 1
        shapes = [math.log((right - left) / (bottom - top)) for left, top, right, bottom in boxes]
        assert max(map(abs, shapes)) < math.log(4 / 3) + 0.03


@pytest.mark.parametrize(
    ("size", "short", "scaled"),
    [((500, 375), 256, (341, 256)), ((375, 500), 256, (256, 341)), ((10, 10), 256, (256, 256))],
)
def test_the_short_side_is_scaled_and_the_aspect_ratio_kept(size, short, scaled):
    assert short_side_size(*size, short) == scaled


def test_the_centre_is_in_the_middle():
    assert central_box(341, 256, 224) == (58, 16, 282, 240)
    assert central_box(224, 224, 224) == (0, 0, 224, 224)
