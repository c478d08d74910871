"""An option that takes the shape of an input."""

import re

import typer

__all__ = ["input_shape"]


def input_shape(text: str) -> tuple[int, ...]:
    """Return channels, height and width of a picture, or the length of a sequence.

    >>> input_shape("3x32x32"), input_shape("64")
    ((3, 32, 32), (64,))
    """
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        raise typer.BadParameter(
            f"{text!r} is not channels x height x width, such as 3x32x32, or the length of a sequence, such as 64",
            param_hint="--input",
        )
    return tuple(map(int, text.split("x")))
