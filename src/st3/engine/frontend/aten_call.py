"""A call of an aten operator in the graph, and the table of translators, which turn such calls into steps.

A translator takes one call and returns its step, a `Read` if the result is another value unchanged, or a view of a
value. It raises `NotCovered` with the reason if this call has to run in torch. The caller names the steps.
"""

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from ..program import Floats, Shape, Step
from .torch_call import Read, TorchCall, substitute

__all__ = [
    "COPIES",
    "COVERED",
    "NO_STEP",
    "AtenCall",
    "NotCovered",
    "Translate",
    "aten",
    "covers",
    "fixed_shape",
]

NO_STEP = "the engine has no step for it"

aten = torch.ops.aten
COPIES = {
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.to.dtype,
    aten._to_copy.default,
}


class NotCovered(Exception):
    """The reason why a call is not translated and runs in torch."""


class AtenCall:
    """The operator's arguments by name; values of the program are `Read`s, constants are themselves."""

    def __init__(
        self,
        node: fx.Node,
        call: TorchCall,
        shapes: dict[str, Shape],
        as_value: Callable[[Any], Any],
        add_step: Callable[[Step, Shape], None],
    ) -> None:
        """`shapes` are the shapes of the values; `as_value` turns a call in the arguments into a value.

        `add_step` adds a step before the one that the translator returns.
        """
        self.node, self.target = node, node.name
        self.add_step = add_step
        self.shapes = shapes
        self.shape = fixed_shape(node)
        self.item: Any = None
        first = call.args[0] if call.args else None
        if call.function is operator.getitem and isinstance(first, TorchCall):  # an item of a tuple
            self.item, call = call.args[1], first
        self.given = _by_name(call)  # as they are: calls that torch would evaluate are not values yet
        self._as_value = as_value

    def __getitem__(self, name: str) -> Any:
        """Return an argument, with values in place of the calls in it."""
        self.given[name] = substitute(self.given[name], self._as_value)
        return self.given[name]

    def value(self, name: str) -> str:
        """Return the name of the value that the argument is."""
        argument = self[name]
        if not isinstance(argument, Read):
            raise NotCovered(f"its {name} is a constant")
        return argument.name

    def array(self, name: str, *, is_transposed: bool = False) -> Floats:
        """Return a constant tensor, or a transposed matrix: in the model's memory if it is float32 and contiguous."""
        argument = self[name]
        if not isinstance(argument, Tensor):
            raise NotCovered(f"its {name} is computed from the input")
        tensor = argument.detach().cpu()
        tensor = tensor.t() if is_transposed else tensor  # torch transposes several times as fast as numpy
        array: Floats = tensor.to(torch.float32).contiguous().numpy()
        return array

    def optional_array(self, name: str) -> Floats | None:
        """Return a constant tensor, or None."""
        return None if self[name] is None else self.array(name)

    def pair(self, name: str) -> tuple[int, int]:
        """Return height and width; a single number stands for both."""
        numbers = self[name]
        numbers = [numbers] if isinstance(numbers, int) else list(numbers)
        return (numbers[0], numbers[-1])

    def before(self, kind: type[Step], source: str, shape: Shape, what: str, **fields: Any) -> str:
        """Add a step of one source and return its value, which is named after this call and `what`."""
        target = f"{self.target}:{what}"
        self.add_step(kind(name="", sources=(source,), target=target, **fields), shape)
        return target

    def need_rank(self, name: str, *ranks: int) -> Shape:
        """Return the shape of a value; raise if its rank is not one of these."""
        shape = self.shapes[self.value(name)]
        if len(shape) not in ranks:
            raise NotCovered(f"its input has {len(shape)} dimensions")
        return shape


def fixed_shape(node: fx.Node) -> Shape:
    """Return the shape of a node's tensor."""
    sizes = tuple(node.meta["val"].shape)
    if not all(isinstance(size, int) for size in sizes):  # a symbol of the tracer
        raise ValueError(
            f"the shape of {node.name!r} depends on the numbers that the model computes; the engine compiles programs "
            "of fixed shapes: compile the part of the model before it"
        )
    return sizes


def _by_name(call: TorchCall) -> dict[str, Any]:
    schema = getattr(call.function, "_schema", None)
    if schema is None:
        raise NotCovered(NO_STEP)
    given = {}
    for position, argument in enumerate(schema.arguments):
        if position < len(call.args):
            given[argument.name] = call.args[position]
        else:
            given[argument.name] = call.kwargs.get(argument.name, argument.default_value)
    return given


def _check_dtypes(node: fx.Node) -> None:
    """Raise if the result or an operand, perhaps inside a tuple, is not float32."""
    sources = [source for direct in node.all_input_nodes for source in (direct, *_behind_tuple(direct))]
    for found in (each.meta.get("val") for each in (node, *sources)):
        if isinstance(found, Tensor) and found.dtype is not torch.float32:
            raise NotCovered(f"it computes with {str(found.dtype).removeprefix('torch.')}")


def _behind_tuple(node: fx.Node) -> list[fx.Node]:
    return node.all_input_nodes if isinstance(node.meta.get("val"), tuple | list) else []


Translate: TypeAlias = Callable[[AtenCall], Step | Read | TorchCall]
COVERED: dict[Any, Translate] = {}


def covers(*operators: Any, only_floats: bool = True) -> Callable[[Translate], Translate]:
    """Return a decorator that registers a function as the translator of these operators.

    With `only_floats`, calls with operands of other types are left to torch.
    """

    def register(translate: Translate) -> Translate:
        def checked(op: AtenCall) -> Step | Read | TorchCall:
            _check_dtypes(op.node)
            return translate(op)

        COVERED.update(dict.fromkeys(operators, checked if only_floats else translate))
        return translate

    return register
