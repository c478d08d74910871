"""The operators of torch that have a step of their own, each with the function that translates it."""

from collections.abc import Callable
from typing import Any

import torch

from ..operation import Operation
from ..program import Step
from ..torch_call import Read

__all__ = ["COVERED", "Translate", "aten", "covers"]

aten = torch.ops.aten

Translate = Callable[[Operation], Step | Read]
COVERED: dict[Any, Translate] = {}


def covers(*operators: Any) -> Callable[[Translate], Translate]:
    """Return a decorator that files its function under these operators."""

    def file(translate: Translate) -> Translate:
        COVERED.update(dict.fromkeys(operators, translate))
        return translate

    return file
