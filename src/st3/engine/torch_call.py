"""An operation that torch evaluates: the exact operator, its constants, and the places its inputs go to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Read", "TorchCall"]


@dataclass(frozen=True)
class Read:
    """Stands in the arguments of a call for the value of that name."""

    name: str


@dataclass(frozen=True)
class TorchCall:
    """function(*args, **kwargs), with tensors for every `Read` in the arguments.

    The arguments may hold further calls: what is not a tensor (the pair that `max` returns, a number taken out of a
    tensor) is no value of a program, so whoever needs it computes it.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def sources(self) -> tuple[str, ...]:
        """The values that are read, each once, in order."""
        return tuple(dict.fromkeys(_reads((self.args, self.kwargs))))

    def evaluate(self, values: dict[str, Any]) -> Any:
        """Return what torch makes of these values."""
        return self.function(*_filled(self.args, values), **_filled(self.kwargs, values))

    def __call__(self, *tensors: Any) -> Any:
        """Evaluate with the tensors of `sources`."""
        return self.evaluate(dict(zip(self.sources, tensors, strict=True)))


def _reads(part: Any) -> Iterator[str]:
    match part:
        case Read(name):
            yield name
        case TorchCall(args=args, kwargs=kwargs):
            yield from _reads((args, kwargs))
        case tuple() | list():
            for item in part:
                yield from _reads(item)
        case dict():
            yield from _reads(tuple(part.values()))
        case slice():
            yield from _reads((part.start, part.stop, part.step))


def _filled(part: Any, values: dict[str, Any]) -> Any:
    match part:
        case Read(name):
            return values[name]
        case TorchCall():
            return part.evaluate(values)
        case tuple() | list():
            return type(part)(_filled(item, values) for item in part)
        case dict():
            return {key: _filled(item, values) for key, item in part.items()}
        case slice():
            return slice(*_filled((part.start, part.stop, part.step), values))
        case _:
            return part
