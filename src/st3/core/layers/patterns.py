"""Which weights a user means: by glob, regular expression, layer type or predicate."""

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from torch import nn

from ...registry import closest

__all__ = [
    "FIRST",
    "LAST",
    "USUAL",
    "Pattern",
    "Patterns",
    "as_patterns",
    "describe",
    "is_depthwise",
    "matches",
    "means_itself",
    "nearest_names",
]

# A glob or plain name, a compiled regular expression, a layer type, or a predicate (weight name, module) -> bool.
Pattern: TypeAlias = str | re.Pattern[str] | type[nn.Module] | Callable[[str, nn.Module], bool]
Patterns: TypeAlias = Pattern | Iterable[Pattern]

FIRST = "first layer"  # attribute names hold no spaces, so these three never clash with a module
LAST = "last layer"
USUAL = "usual layers"  # for include: the layers that are covered without it

_PLACES = {FIRST: ("st3.FIRST", "exclude"), LAST: ("st3.LAST", "exclude"), USUAL: ("st3.USUAL", "include")}


def as_patterns(patterns: Patterns | None, argument: str) -> tuple[Pattern, ...]:
    """Return one pattern or many as a tuple; raise where something is not a pattern."""
    if patterns is None:
        return ()
    if (
        isinstance(patterns, str | re.Pattern | type)
        or callable(patterns)
        or not isinstance(patterns, Iterable)
    ):
        patterns = (patterns,)
    result = tuple(patterns)
    for pattern in result:
        is_type = isinstance(pattern, type) and issubclass(pattern, nn.Module)
        if isinstance(pattern, nn.Module) or not (
            is_type
            or isinstance(pattern, str | re.Pattern)
            or (callable(pattern) and not isinstance(pattern, type))
        ):
            raise TypeError(
                f"{argument} takes names, globs, compiled regular expressions, nn.Module types or functions "
                f"(name, module) -> bool; got {pattern!r}"
            )
        constant, belongs = (
            _PLACES.get(pattern, ("", argument)) if isinstance(pattern, str) else ("", argument)
        )
        if belongs != argument:
            raise ValueError(f"{argument} does not take {constant}: it belongs into {belongs}")
    return result


def matches(pattern: Pattern, name: str, module: nn.Module) -> bool:
    """Tell whether `pattern` means the weight `name` of `module`.

    A glob that matches a module means every weight below it, so "head" covers "head.0.weight".
    """
    if isinstance(pattern, str):
        parts = name.split(".")
        return any(fnmatch.fnmatchcase(".".join(parts[:end]), pattern) for end in range(1, len(parts) + 1))
    if isinstance(pattern, re.Pattern):
        return pattern.search(name) is not None
    if isinstance(pattern, type):
        return isinstance(module, pattern)
    return bool(pattern(name, module))


def is_depthwise(name: str, module: nn.Module) -> bool:
    """Whether a weight is of a depthwise convolution: a predicate for `exclude`."""
    return isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1


def means_itself(pattern: Pattern, names: Iterable[str]) -> bool:
    """Tell whether a pattern that matches a weight means one of `names` (its own and its module's), not one above."""
    return not isinstance(pattern, str) or any(fnmatch.fnmatchcase(name, pattern) for name in names)


def nearest_names(pattern: Pattern, names: Sequence[str]) -> list[str]:
    """Return existing module or weight names that look like `pattern`."""
    if not isinstance(pattern, str):
        return []
    known = dict.fromkeys(".".join(n.split(".")[:end]) for n in names for end in range(1, n.count(".") + 2))
    return closest(pattern.strip("*."), known)


def describe(pattern: Pattern) -> str:
    """Return `pattern` as the user would recognise it."""
    if isinstance(pattern, str):
        return _PLACES[pattern][0] if pattern in _PLACES else repr(pattern)
    if isinstance(pattern, re.Pattern):
        return f"re.compile({pattern.pattern!r})"
    return getattr(pattern, "__qualname__", None) or repr(pattern)
