"""What torch evaluates: calls of operators with placeholders for values of the program, and values of other types.

The values of a program are float32. Tensors of other types (token ids, masks) are stored as the bits of float32; only
calls in torch read them, and convert them back first.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..program import View

__all__ = [
    "Read",
    "TorchCall",
    "as_view",
    "float_bits_shape",
    "from_float_bits",
    "substitute",
    "to_float_bits",
]

WIDTH = 4  # bytes of a float32


@dataclass(frozen=True)
class Read:
    """A placeholder in the arguments of a call: the value of that name."""

    name: str


@dataclass(frozen=True)
class TorchCall:
    """function(*args, **kwargs), with a tensor for every `Read` in the arguments.

    The arguments may contain further calls: a result that is not a float32 tensor (the pair that `max` returns, a mask,
    a number) cannot be a value of a program, so every call that needs it computes it.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str  # of the result in the graph
    is_value: bool  # whether the result is a float32 tensor, so that it can be a value of a program

    @property
    def sources(self) -> tuple[str, ...]:
        """The values that are read, in order, without repetitions."""
        return tuple(dict.fromkeys(self.reads))

    @property
    def reads(self) -> tuple[str, ...]:
        """The values that are read, in order, with repetitions."""
        return tuple(_reads((self.args, self.kwargs)))

    @property
    def operators(self) -> list[str]:
        """The operators that torch evaluates, in order."""
        inner = [part.operators for part in _parts((self.args, self.kwargs)) if isinstance(part, TorchCall)]
        own = str(getattr(self.function, "__name__", self.function)).partition(".")[0]
        is_ours = self.function is from_float_bits
        return [*(name for names in inner for name in names), *([] if is_ours else [own])]

    def evaluate(self, values: dict[str, Any]) -> Any:
        """Return the result of the call for these values."""
        args, kwargs = substitute((self.args, self.kwargs), lambda part: _evaluate_part(part, values))
        return self.function(*args, **kwargs)

    def with_inner(self, call: "TorchCall") -> "TorchCall":
        """Return this call with `call` in place of the value that it computes."""

        def new(part: Read | TorchCall) -> Read | TorchCall:
            if isinstance(part, TorchCall):
                return part.with_inner(call)
            return call if part.name == call.name else part

        args, kwargs = substitute((self.args, self.kwargs), new)
        return replace(self, args=args, kwargs=kwargs)

    def rename(self, names: Mapping[str, str]) -> "TorchCall":
        """Return this call with other values in place of some."""

        def new(part: Read | TorchCall) -> Read | TorchCall:
            return (
                part.rename(names) if isinstance(part, TorchCall) else Read(names.get(part.name, part.name))
            )

        args, kwargs = substitute((self.args, self.kwargs), new)
        return replace(self, args=args, kwargs=kwargs)

    def __call__(self, *tensors: Any) -> Any:
        """Evaluate with the tensors of `sources`."""
        return self.evaluate(dict(zip(self.sources, tensors, strict=True)))


def _evaluate_part(part: "Read | TorchCall", values: dict[str, Any]) -> Any:
    return values[part.name] if isinstance(part, Read) else part.evaluate(values)


def _reads(argument: Any) -> Iterator[str]:
    for part in _parts(argument):
        if isinstance(part, Read):
            yield part.name
        else:
            yield from part.reads


def _parts(argument: Any) -> list["Read | TorchCall"]:
    """Return the values and calls in some arguments, without looking into the calls."""
    found: list[Read | TorchCall] = []
    substitute(argument, found.append)
    return found


def substitute(argument: Any, new: Callable[[Any], Any]) -> Any:
    """Return the arguments with every `Read` and every call in them replaced by `new` of it."""
    match argument:
        case Read() | TorchCall():
            return new(argument)
        case tuple() | list():
            return type(argument)(substitute(item, new) for item in argument)
        case dict():
            return {key: substitute(item, new) for key, item in argument.items()}
        case slice():
            return slice(*substitute((argument.start, argument.stop, argument.step), new))
        case _:
            return argument


def as_view(part: Any, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, View] | None:
    """Return the value that a call returns some elements of, without copying them, and which; None if it computes.

    >>> seen = TorchCall(torch.Tensor.t, (Read("x"),), {}, "t", is_value=True)
    >>> as_view(seen, {"x": (2, 3)})
    ('x', View(shape=(3, 2), strides=(1, 3), offset=0))
    """
    if isinstance(part, Read):
        part = TorchCall(torch.Tensor.detach, (part,), {}, part.name, is_value=True)
    if not isinstance(part, TorchCall) or len(part.sources) != 1:
        return None
    (name,) = part.sources
    whole = torch.empty(shapes[name], dtype=torch.float32, device="meta")
    seen = part.evaluate({name: whole})
    is_view = isinstance(seen, Tensor) and seen.untyped_storage()._cdata == whole.untyped_storage()._cdata
    if not is_view or seen.dtype is not torch.float32:
        return None
    return name, View(tuple(seen.shape), tuple(seen.stride()), int(seen.storage_offset()))


def to_float_bits(tensor: Tensor) -> Tensor:
    """Return the tensor's bytes as a row of float32; a float32 tensor unchanged.

    >>> ids = torch.tensor([[7, -1], [2**40, 3]])
    >>> from_float_bits(to_float_bits(ids), ids.dtype, (2, 2)).tolist()
    [[7, -1], [1099511627776, 3]]
    """
    if tensor.dtype is torch.float32:
        return tensor
    row = tensor.contiguous().reshape(-1).view(torch.uint8)
    return F.pad(row, (0, -len(row) % WIDTH)).view(torch.float32)


def float_bits_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of `to_float_bits` of a tensor."""
    return shape if dtype is torch.float32 else (-(-math.prod(shape) * dtype.itemsize // WIDTH),)


def from_float_bits(bits: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return the tensor that `to_float_bits` was given."""
    size = math.prod(shape) * dtype.itemsize
    return bits.view(torch.uint8)[:size].view(dtype).view(shape)
