"""What a method is: its equations, its settings, and what goes together with it.

A method is a frozen dataclass that holds settings and no state. It is written on the base of its family (families/),
which says what is kept per weight and what happens around a step; nothing outside asks what kind of method it is.
What goes together with a method is declared here and checked in choices.py.
"""

from abc import ABC
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..registry import Registry
from .budget.ramp import Ramp

if TYPE_CHECKING:
    from .families.family import Family

__all__ = ["METHODS", "Method"]


class Method(ABC):
    """A sparse-training method. Abstract; its subclasses in families/ are the bases of methods."""

    family: "ClassVar[type[Family[Any]]]"

    usual_allocation: ClassVar[str] = "global"  # what it takes if nothing else is asked for
    usual_ramp: ClassVar[str] = "cubic"
    # Start and end of its ramp; None: the paper's, 5/160 and 0.5.
    usual_times: ClassVar[tuple[float, float] | None] = None
    only_ramps: ClassVar[tuple[str, ...]] = ()  # the ramps that make sense for it; empty: any
    only_allocations: ClassVar[tuple[str, ...]] = ()  # likewise
    only_by_shape: ClassVar[bool] = False  # only allocations that share by the shapes of layers
    why_only_ramps: ClassVar[str] = "keeps one sparsity from the first step to the last"
    why_only_allocations: ClassVar[str] = ""
    takes_floors: ClassVar[bool] = True  # min_weights and layer_sparsity mean something to it
    restores: ClassVar[bool] = True  # a ramp may fall: what was zeroed can come back

    has_target: ClassVar[bool] = True  # False: its sparsity cannot be asked for, only found out
    learns: ClassVar[str | None] = None  # the variable that it learns beside the weights
    # Why training in cycles (LRR) makes no sense for it; empty: it does.
    why_not_in_cycles: ClassVar[str] = ""
    passes: int = 1  # forward and backward passes that one step is meant to be made from

    @property
    def own_sparsity(self) -> float | None:
        """The target, where the settings of the method imply it."""
        return None

    @property
    def own_ramp(self) -> Ramp | None:
        """The ramp, where its times are settings of the method."""
        return None

    def why_not_in_blocks(self, sparsity: float) -> str:
        """Return why it cannot zero weights in blocks, for this target sparsity; empty: it can."""
        return "zeroes single weights"

    def search_end(self, total_steps: int) -> int | None:
        """Return the step at which the method fixes its masks by itself, if it does: the ramp must end by then."""
        return None

    def slack(self, numel: int, sparsity: float) -> int:
        """Return how many of the zeros asked for may be missing, for a method whose count is random."""
        return 0


METHODS: Registry[Callable[..., Method]] = Registry("method")
METHODS.hint("st3-sigma", "ST-3 sigma is method='st3' with allocation='sigma'")
