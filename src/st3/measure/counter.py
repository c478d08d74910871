"""Watch every operation that torch executes, and add up the multiply-adds of the matrix products."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .products import PRODUCTS
from .provenance import Provenance, tensors_in

__all__ = ["Counter"]

LOOK_UPS = {"aten.embedding", "aten._embedding_bag", "aten.index", "aten.index_select", "aten.gather"}

# Operations of these namespaces are not products unless PRODUCTS lists them. Those of any other namespace may be.
KNOWN_NAMESPACES = {"aten", "prim", "prims", "profiler", "c10d", "c10d_functional", "_c10d_functional"}

# The names of the operations that used each parameter; the inner dictionary serves as an ordered set.
Uses = defaultdict[nn.Parameter, dict[str, None]]


class Counter(TorchDispatchMode):
    """Inside `with counter:`, every product is counted and every other use of a parameter is recorded."""

    supports_higher_order_operators = True  # torch would refuse to run them otherwise

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.macs: defaultdict[nn.Parameter, int] = defaultdict(int)
        self.activation_macs = 0
        self.unknown_operations: dict[str, None] = {}  # no formula; they use no weight, only activations
        self._provenance = Provenance(model)
        self._known_uses: Uses = defaultdict(dict)
        self._unknown_uses: Uses = defaultdict(dict)  # may contain a product
        self._looked_up: set[nn.Parameter] = set()  # embeddings

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spare torch the import of its compiler (two seconds): nothing is compiled here, see `side_effects`."""
        return False

    def notes(self, name: str, weight: nn.Parameter) -> list[str]:
        """Return the uses of `weight` that were not counted, in plain words; `name` is its name in the model."""
        uses = dict(self._unknown_uses[weight])
        if weight not in self.macs and weight not in self._looked_up:
            uses |= self._known_uses[weight]
            if not uses:
                return [f"{name}: not used in this forward pass"]
        return [f"{use} on {name}" for use in uses]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_plain = isinstance(func, torch._ops.OpOverload)
        name = str(func.overloadpacket) if is_plain else str(func)
        if is_plain and name not in PRODUCTS:
            with self:  # in inference mode, torch has not decomposed the operation yet
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if name in PRODUCTS:
            self._count(name, args, kwargs, result)
        else:
            self._record(name, func, list(tensors_in((args, kwargs))), result)
        return result

    def _count(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        macs, factors = PRODUCTS[name](args, result)
        weight = next(iter(self._owners(factors)), None)
        if weight is None:
            self.activation_macs += macs
        else:
            self.macs[weight] += macs
        inputs = list(tensors_in((args, kwargs)))
        _add_uses(self._known_uses, self._owners(inputs), name)
        # A product of constants (spectral norm, low-rank update) is not a weight itself.
        if all(map(self._provenance.is_constant, inputs)):
            self._provenance.inherit((), tensors_in(result))

    def _record(self, name: str, func: Any, inputs: list[Tensor], result: Any) -> None:
        users = self._owners(inputs)
        if name in LOOK_UPS:
            self._looked_up.update(users)
        elif inputs and all(map(self._provenance.is_constant, inputs)):
            heir = self._provenance.inherit(inputs, tensors_in(result))
            _add_uses(self._known_uses, (user for user in users if user is not heir), name)
        elif torch.Tag.pointwise in getattr(func, "tags", ()):
            _add_uses(self._known_uses, users, name)
        else:
            _add_uses(self._unknown_uses, users, name)
            is_known = getattr(func, "namespace", None) in KNOWN_NAMESPACES
            if not is_known and all(user.dim() < 2 for user in users):
                self.unknown_operations[f"{name}: no formula for this operation"] = None

    def _owners(self, tensors: Iterable[Tensor]) -> list[nn.Parameter]:
        return [owner for owner in map(self._provenance.owner, tensors) if owner is not None]


def _add_uses(uses: Uses, parameters: Iterable[nn.Parameter], operation: str) -> None:
    for parameter in parameters:
        uses[parameter][operation] = None
