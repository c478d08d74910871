"""Notice weights that somebody else has written.

torch counts how often a tensor was written. After each of our writes the counts of the parameter and of the tensor that
belongs to it are noted; if later the parameter's has moved and the tensor's has not, somebody replaced the weights, and
the tensor would silently undo that. Writes through `.data` cannot be seen.
"""

from torch import Tensor

from ..layers.layer import Layer
from ..layers.shards import local

__all__ = ["Versions"]


class Versions:
    """What parameters and their tensors looked like when we last wrote them."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, Tensor, int]] = {}

    def note(self, layer: Layer, tensor: Tensor) -> None:
        """Note parameter and tensor as they are now."""
        self._seen[layer.name] = (_version(layer.parameter), local(tensor), _version(tensor))

    def was_replaced(self, layer: Layer, tensor: Tensor | None) -> bool:
        """Whether the parameter was written since `note`, and its tensor was not."""
        seen = self._seen.get(layer.name)
        if seen is None or tensor is None or _version(layer.parameter) == seen[0]:
            return False
        return local(tensor) is seen[1] and _version(tensor) == seen[2]


def _version(tensor: Tensor) -> int:
    """Return a number that grows whenever the tensor is written: for a DTensor as such, or in its local part."""
    part = local(tensor)
    return tensor._version if part is tensor else tensor._version + part._version
