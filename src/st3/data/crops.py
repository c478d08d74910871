"""Which part of a photograph the network sees: plain geometry.

Boxes are (left, top, right, bottom) in pixels, as Pillow takes them.
"""

import math
from random import Random

__all__ = ["Box", "central_box", "random_box", "short_side_size"]

Box = tuple[int, int, int, int]

AREA = (0.08, 1.0)  # smallest and largest, as a share of the picture
RATIO = (3 / 4, 4 / 3)  # width over height
TRIES = 10


def random_box(width: int, height: int, random: Random) -> Box:
    """Draw a box of random area and shape ("Inception crop"); if ten do not fit, take the largest central box.

    The area is uniform in AREA, the ratio log-uniform in RATIO. Only `random.random()` is used, because it gives the
    same numbers in every version of Python.
    """
    for _ in range(TRIES):
        area = width * height * (AREA[0] + (AREA[1] - AREA[0]) * random.random())
        low, high = math.log(RATIO[0]), math.log(RATIO[1])
        ratio = math.exp(low + (high - low) * random.random())
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            left = int(random.random() * (width - wide + 1))
            top = int(random.random() * (height - tall + 1))
            return left, top, left + wide, top + tall
    return largest_box(width, height)


def largest_box(width: int, height: int) -> Box:
    """Return the largest central box whose ratio of width to height is within RATIO."""
    wide = min(width, round(height * RATIO[1]))
    tall = min(height, round(width / RATIO[0]))
    left, top = (width - wide) // 2, (height - tall) // 2
    return left, top, left + wide, top + tall


def short_side_size(width: int, height: int, short: int) -> tuple[int, int]:
    """Return width and height after the short side is scaled to `short`, at the same aspect ratio.

    >>> short_side_size(500, 375, 256)
    (341, 256)
    """
    if width <= height:
        return short, int(short * height / width)
    return int(short * width / height), short


def central_box(width: int, height: int, side: int) -> Box:
    """Return the central square of `side` pixels.

    >>> central_box(341, 256, 224)
    (58, 16, 282, 240)
    """
    left, top = round((width - side) / 2), round((height - side) / 2)
    return left, top, left + side, top + side
