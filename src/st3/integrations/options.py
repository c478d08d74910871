"""The options of a callback: the arguments of `sparsify` that the trainer does not know."""

import inspect
from collections.abc import Iterable

from ..core.sparsify import sparsify

__all__ = ["check_options"]

BY_TRAINER = ("model", "optimizer", "total_steps")


def check_options(callback: str, names: Iterable[str]) -> None:
    """Raise for a name that is no argument of `sparsify`, or one whose value comes from the trainer.

    >>> check_options("SparseTraining", ["exclude", "total_steps"])
    Traceback (most recent call last):
        ...
    TypeError: SparseTraining takes no argument 'total_steps': it comes from the trainer
    """
    known = [name for name in inspect.signature(sparsify).parameters if name not in BY_TRAINER]
    for name in names:
        if name not in known:
            why = "it comes from the trainer" if name in BY_TRAINER else f"it takes {', '.join(known)}"
            raise TypeError(f"{callback} takes no argument {name!r}: {why}")
