"""The table of aten operators and their translators."""

from collections.abc import Callable
from typing import Any

import torch

from ..aten_call import AtenCall
from ..program import Step
from ..torch_call import Read

__all__ = ["COVERED", "Translate", "aten", "covers"]

aten = torch.ops.aten

Translate = Callable[[AtenCall], Step | Read]
COVERED: dict[Any, Translate] = {}


def covers(*operators: Any) -> Callable[[Translate], Translate]:
    """Return a decorator that registers a function as the translator of these operators."""

    def register(translate: Translate) -> Translate:
        COVERED.update(dict.fromkeys(operators, translate))
        return translate

    return register
