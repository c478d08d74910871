"""What can go wrong, by name. Each is raised with one sentence: what was asked, what was found, what to do."""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "CheckpointError",
    "CoverageWarning",
    "Faults",
    "LayerCollapseWarning",
    "PrecisionWarning",
    "TargetMissedError",
    "WeightsReplacedError",
    "name_some",
]


class TargetMissedError(RuntimeError):
    """The model holds fewer zeros than were asked for.

    Raised by `finalize`. The message says where the run stood: most often training stopped before the ramp's end,
    because `total_steps` counted batches where `optimizer.step` was called once for several of them. Train on, or
    call `sparsify` with the number of steps that the run really has.
    """


class WeightsReplacedError(RuntimeError):
    """Weights were changed behind the sparsifier's back, and their raw weights were not.

    Raised by the next `optimizer.step`, usually after `load_state_dict` of the model alone. Load the optimizer's
    state as well, or call `sparsifier.adopt()` to go on from the new weights.
    """


class CheckpointError(RuntimeError):
    """A checkpoint lacks raw weights, or they belong to another model.

    Nothing has been loaded. Use the optimizer state that was saved with this model, and call `sparsify` with the same
    method, `include` and `exclude`. The optimizer state of a dense run is loaded before `sparsify` is called.
    """


class CoverageWarning(UserWarning):
    """Most of the model's weights are of unknown kinds and stay dense.

    Given by `sparsify`, with the kinds and names; by `finalize` for layers that never had a gradient. Bring layers in
    by `include`, or leave those that are not trained out by `exclude`; `st3.layers(model)` shows what is covered, and
    why the rest is not.
    """


class LayerCollapseWarning(UserWarning):
    """A layer or filter has lost its last weight.

    It names the layer and the step. Lower the sparsity, keep some weights in every layer (`min_weights`), share the
    zeros in another way (`allocation="erk"`), or exclude the layer. Single empty filters are common at high sparsity.
    """


class PrecisionWarning(UserWarning):
    """Raw weights are in half precision, too coarse for small updates.

    Given by `sparsify` where parameters are bfloat16 or float16. Keep them in float32 and compute in half precision
    (`torch.autocast`, `MixedPrecisionPolicy` of `fully_shard`), or use an optimizer that rounds stochastically.
    """


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
