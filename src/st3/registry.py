"""Name -> thing, with a suggestion for a misspelt name.

Names are for people, the command line and specs; everything that takes a name also takes the object.
"""

import difflib
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

__all__ = ["Registry", "closest", "import_siblings", "suggest", "unknown_name"]

T = TypeVar("T")
MIN_LIKENESS = 0.5  # between 0 and 1; names less alike than this are not suggested


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
        """Add `advice` to the error for `name`, which is not registered but likely to be tried."""
        self._hints[name] = advice

    def __getitem__(self, name: str) -> T:
        if name in self._things:
            return self._things[name]
        advice = f"; {self._hints[name]}" if name in self._hints else suggest(name, self._things)
        raise LookupError(f"unknown {self.kind} {name!r}{advice} (known: {', '.join(self) or 'none'})")

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
    advice = "" if name.startswith("_") else suggest(name, known)
    return AttributeError(f"module {package!r} has no attribute {name!r}{advice}")


def suggest(name: str, known: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """Return what an error message adds about the misspelt `name`; nothing if no known name looks like it.

    `spell` turns the name that was found into what the user should type.

    >>> suggest("rad", ["red", "green"])
    "; did you mean 'red'?"
    >>> suggest("rad", ["red", "green"], spell="colour.{}".format)
    "; did you mean 'colour.red'?"
    >>> suggest("xyz", ["red", "green"])
    ''
    """
    near = closest(name, known, most=1)
    return f"; did you mean {spell(near[0])!r}?" if near else ""


def closest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return up to `most` of the `known` names that look like `name`, best first.

    Ties go to names that have a digit where `name` has one, then to the first in the alphabet.

    >>> closest("st4", ["set", "st3", "str"])
    ['st3', 'set', 'str']
    """
    wanted = _simplify(name)
    likeness = {other: _likeness(wanted, _simplify(other)) for other in known}
    near = [other for other in likeness if likeness[other][0] >= MIN_LIKENESS]
    return sorted(near, key=lambda other: (-likeness[other][0], -likeness[other][1], other))[:most]


def _simplify(name: str) -> str:
    return name.lower().replace("-", "")


def _likeness(one: str, other: str) -> tuple[float, float]:
    """Return how alike two names are, from 0 to 1, and how alike if all digits were the same."""
    alike = difflib.SequenceMatcher(None, other, one).ratio()
    one, other = (re.sub(r"\d", "0", text) for text in (one, other))
    return alike, difflib.SequenceMatcher(None, other, one).ratio()
