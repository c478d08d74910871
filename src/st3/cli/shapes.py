"""An option that takes the shape of a picture."""

import re

import typer

__all__ = ["picture_shape"]


def picture_shape(text: str) -> tuple[int, int, int]:
    """Return channels, height and width.

    >>> picture_shape("3x32x32")
    (3, 32, 32)
    """
    if not (match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text)):
        raise typer.BadParameter(
            f"{text!r} is not channels x height x width, such as 3x32x32", param_hint="--input"
        )
    channels, height, width = map(int, match.groups())
    return channels, height, width
