"""Name -> thing, with a suggestion for a misspelt name.

Names are for people, the command line and specs; everything that takes a name also takes the object.
"""

import difflib
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

__all__ = ["Registry", "closest", "import_siblings", "unknown_name"]

T = TypeVar("T")
LEAST = 0.5  # how alike two names must be, 0 to 1, for one to be suggested for the other


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


def import_siblings(package: str, path: Iterable[str], names: dict[str, Any]) -> list[str]:
    """Import every file of a package, which registers what is in it; bring their public names into `names`.

    Returns these names. So a plug-in of the library is one file: nothing lists it a second time.
    """
    found = []
    for module in pkgutil.iter_modules(path):
        public = importlib.import_module(f"{package}.{module.name}")
        for name in getattr(public, "__all__", ()):
            names[name] = getattr(public, name)
            found.append(name)
    return found


def unknown_name(package: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for a name that a package does not have, with a suggestion."""
    near = closest(name, known, most=1)
    advice = f"; did you mean {near[0]!r}?" if near and not name.startswith("_") else ""
    return AttributeError(f"module {package!r} has no attribute {name!r}{advice}")


def closest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return up to `most` of the `known` names that look like `name`, best first.

    Of names that look equally like it, those with a digit where it has one come first, then by the alphabet.

    >>> closest("st4", ["set", "st3", "str"])
    ['st3', 'set', 'str']
    """
    wanted = _bare(name)
    likeness = {other: _likeness(wanted, _bare(other)) for other in known}
    near = [other for other in likeness if likeness[other][0] >= LEAST]
    return sorted(near, key=lambda other: (-likeness[other][0], -likeness[other][1], other))[:most]


def _bare(name: str) -> str:
    return name.lower().replace("-", "")


def _likeness(one: str, other: str) -> tuple[float, float]:
    """Return how alike two names are, 0 to 1, and the same with all digits taken for one."""
    alike = difflib.SequenceMatcher(None, other, one).ratio()
    one, other = (re.sub(r"\d", "0", text) for text in (one, other))
    return alike, difflib.SequenceMatcher(None, other, one).ratio()
