"""One operation of the graph, as the functions that translate it want to see it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from .program import Floats, Shape
from .torch_call import Read, TorchCall, replaced

__all__ = ["NotCovered", "Operation"]


class NotCovered(Exception):
    """Why an operation has no step of its own: torch evaluates it."""


class Operation:
    """The operator's arguments by name, with values of the program as `Read`, constants as they are."""

    def __init__(
        self, node: fx.Node, call: TorchCall, shapes: dict[str, Shape], made: Callable[[Any], Any]
    ) -> None:
        """`shapes` are those of values; `made` turns a call in the arguments into a value."""
        self.target = node.name
        self.shapes = shapes
        self.shape: Shape = tuple(node.meta["val"].shape)
        self.item: Any = None
        first = call.args[0] if call.args else None
        if isinstance(first, TorchCall) and not first.is_value:  # one item of a tuple
            self.item, call = call.args[1], first
        _check_dtypes(node)
        self.given = {name: replaced(argument, made) for name, argument in _by_name(call).items()}

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    def value(self, name: str) -> str:
        """Return which value the argument is."""
        argument = self.given[name]
        if not isinstance(argument, Read):
            raise NotCovered(f"its {name} is a constant")
        return argument.name

    def array(self, name: str) -> Floats:
        """Return a copy of a constant tensor."""
        argument = self.given[name]
        if not isinstance(argument, Tensor):
            raise NotCovered(f"its {name} is computed from the input")
        return np.array(argument.detach().cpu().numpy(), np.float32, order="C")

    def optional_array(self, name: str) -> Floats | None:
        """Return a copy of a constant tensor, if it was given."""
        return None if self.given[name] is None else self.array(name)

    def pair(self, name: str) -> tuple[int, int]:
        """Return two numbers, height and width; one stands for both."""
        numbers = self.given[name]
        numbers = [numbers] if isinstance(numbers, int) else list(numbers)
        return (numbers[0], numbers[-1])

    def need_rank(self, name: str, *ranks: int) -> Shape:
        """Return the shape of a value; refuse one of another rank."""
        shape = self.shapes[self.value(name)]
        if len(shape) not in ranks:
            raise NotCovered(f"it works on {len(shape)} dimensions")
        return shape


def _by_name(call: TorchCall) -> dict[str, Any]:
    schema = getattr(call.function, "_schema", None)
    if schema is None:
        raise NotCovered("the engine has no such step")
    given = {}
    for position, argument in enumerate(schema.arguments):
        if position < len(call.args):
            given[argument.name] = call.args[position]
        else:
            given[argument.name] = call.kwargs.get(argument.name, argument.default_value)
    return given


def _check_dtypes(node: fx.Node) -> None:
    """Refuse numbers that are not float32, of the result or of what it is made from (through a tuple as well)."""
    sources = [source for direct in node.all_input_nodes for source in (direct, *_behind_tuple(direct))]
    for found in (each.meta.get("val") for each in (node, *sources)):
        if isinstance(found, Tensor) and found.dtype is not torch.float32:
            raise NotCovered(f"it works on {str(found.dtype).removeprefix('torch.')}")


def _behind_tuple(node: fx.Node) -> list[fx.Node]:
    return node.all_input_nodes if isinstance(node.meta.get("val"), tuple | list) else []
