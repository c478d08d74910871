"""An operation that torch evaluates: the exact operator, its constants, and the places its inputs go to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Read", "TorchCall", "replaced"]


@dataclass(frozen=True)
class Read:
    """Stands in the arguments of a call for the value of that name."""

    name: str


@dataclass(frozen=True)
class TorchCall:
    """function(*args, **kwargs), with tensors for every `Read` in the arguments.

    The arguments may hold further calls: what is not a float32 tensor (the pair that `max` returns, a mask, a number
    taken out of a tensor) is no value of a program, so whoever needs it computes it.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    name: str  # of the result in the graph
    is_value: bool  # whether the result could be a value of a program: it is a float32 tensor

    @property
    def sources(self) -> tuple[str, ...]:
        """The values that are read, each once, in order."""
        return tuple(dict.fromkeys(self.reads))

    @property
    def reads(self) -> tuple[str, ...]:
        """The values that are read, as often as they are read."""
        return tuple(_reads((self.args, self.kwargs)))

    @property
    def operators(self) -> list[str]:
        """What torch is asked to do, in the order in which it does it."""
        inner = [part.operators for part in _parts((self.args, self.kwargs)) if isinstance(part, TorchCall)]
        own = str(getattr(self.function, "__name__", self.function)).partition(".")[0]
        is_ours = getattr(self.function, "__module__", "").startswith("st3.")
        return [*(name for names in inner for name in names), *([] if is_ours else [own])]

    def evaluate(self, values: dict[str, Any]) -> Any:
        """Return what torch makes of these values."""
        args, kwargs = replaced((self.args, self.kwargs), lambda part: _evaluated(part, values))
        return self.function(*args, **kwargs)

    def with_inner(self, call: "TorchCall") -> "TorchCall":
        """Return this call with another one in the place of the value that the other makes."""

        def new(part: Read | TorchCall) -> Read | TorchCall:
            if isinstance(part, TorchCall):
                return part.with_inner(call)
            return call if part.name == call.name else part

        args, kwargs = replaced((self.args, self.kwargs), new)
        return replace(self, args=args, kwargs=kwargs)

    def __call__(self, *tensors: Any) -> Any:
        """Evaluate with the tensors of `sources`."""
        return self.evaluate(dict(zip(self.sources, tensors, strict=True)))


def _evaluated(part: "Read | TorchCall", values: dict[str, Any]) -> Any:
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
    replaced(argument, found.append)
    return found


def replaced(argument: Any, new: Callable[[Any], Any]) -> Any:
    """Return arguments with something new for each `Read` and each call in them."""
    match argument:
        case Read() | TorchCall():
            return new(argument)
        case tuple() | list():
            return type(argument)(replaced(item, new) for item in argument)
        case dict():
            return {key: replaced(item, new) for key, item in argument.items()}
        case slice():
            return slice(*replaced((argument.start, argument.stop, argument.step), new))
        case _:
            return argument
