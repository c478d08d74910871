"""Name -> thing, with a suggestion for a misspelt name.

Names are for people, the command line and specs; everything that takes a name also takes the object.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["Registry", "closest"]

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind, by name.

    >>> COLOURS: Registry[int] = Registry("colour")
    >>> COLOURS.register("red")(0xFF0000)
    16711680
    >>> COLOURS["red"]
    16711680
    >>> COLOURS["rad"]
    Traceback (most recent call last):
        ...
    LookupError: unknown colour 'rad'; did you mean 'red'? (known: red)
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, T] = {}
        self._hints: dict[str, str] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that files its argument under `name`."""

        def file(thing: T) -> T:
            if name in self._things:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._things[name] = thing
            return thing

        return file

    def hint(self, name: str, advice: str) -> None:
        """Answer the unknown but likely `name` with `advice`."""
        self._hints[name] = advice

    def __getitem__(self, name: str) -> T:
        if name in self._things:
            return self._things[name]
        advice = self._hints.get(name, "")
        if not advice and (near := closest(name, self._things)):
            advice = f"did you mean {near[0]!r}?"
        known = ", ".join(self) or "none"
        raise LookupError(f"unknown {self.kind} {name!r}{advice and '; ' + advice} (known: {known})")

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._things))

    def __contains__(self, name: object) -> bool:
        return name in self._things


def closest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return up to `most` of the `known` names that look like `name`, best first."""
    by_lower = {other.lower().replace("-", ""): other for other in known}
    found = difflib.get_close_matches(name.lower().replace("-", ""), list(by_lower), n=most, cutoff=0.5)
    return [by_lower[other] for other in found]
