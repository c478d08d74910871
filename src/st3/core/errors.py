"""What can go wrong, by name. Each is raised with one sentence: what was asked, what was found, what to do."""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "CheckpointError",
    "CoverageWarning",
    "Faults",
    "LayerCollapseWarning",
    "TargetMissedError",
    "WeightsReplacedError",
    "name_some",
]


class TargetMissedError(RuntimeError):
    """The model holds fewer zeros than were asked for."""


class WeightsReplacedError(RuntimeError):
    """Weights were changed behind the sparsifier's back, and their raw weights were not."""


class CheckpointError(RuntimeError):
    """A checkpoint lacks raw weights, or they belong to another model."""


class CoverageWarning(UserWarning):
    """Most of the model's weights are of unknown kinds and stay dense."""


class LayerCollapseWarning(UserWarning):
    """A layer or filter has lost its last weight."""


class Faults:
    """Collects what is wrong with some input, so that all of it can be said at once."""

    def __init__(self) -> None:
        self.found: list[Exception] = []

    def check(self, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what `make` makes of its arguments; None, and a fault more, if it refuses them."""
        try:
            return make(*args, **kwargs)
        except (TypeError, ValueError, LookupError) as fault:
            self.found.append(fault)
            return None

    def raise_all(self) -> None:
        """Raise the fault, or all of them as one ValueError."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise ValueError("; ".join(str(fault) for fault in self.found))


def name_some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and how many more there are.

    >>> name_some(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
