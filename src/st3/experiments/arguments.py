"""What a function of the catalogues, or of the user, can be called with: checked before anything is trained."""

import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from ..core.method import METHODS, Method
from ..registry import suggest

__all__ = [
    "argument_faults",
    "handed_over",
    "method_faults",
    "method_of",
    "missing_arguments",
    "takes_classes",
    "value_faults",
]

PLAIN = (bool, int, float, str, type(None))

# What functions call the number of classes and of input channels.
CLASSES = ("classes", "num_classes")
CHANNELS = ("channels", "in_channels", "in_chans")


def argument_faults(
    make: Callable[..., Any], arguments: Mapping[str, Any], what: str, taken: tuple[str, ...] = ()
) -> list[str]:
    """Return a sentence for every argument that `make` does not take; those in `taken` are not the user's to give."""
    takes = _parameters(make)
    if any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        return []
    known = [name for name in takes if name not in taken]
    faults = []
    for name in arguments:
        if name not in known:
            advice = suggest(name, known)
            faults.append(f"{what} takes no argument {name!r}{advice} (known: {', '.join(known) or 'none'})")
    return faults


def value_faults(make: Callable[..., Any], arguments: Mapping[str, Any], what: str) -> list[str]:
    """Return a sentence for every value that is not of its argument's type, as far as that is a plain one."""
    takes = _parameters(make)
    faults = []
    for name, value in arguments.items():
        if name not in takes or not _is_plain(takes[name].annotation):
            continue
        try:
            TypeAdapter(takes[name].annotation).validate_python(value, strict=True)
        except ValidationError as error:
            said = " or ".join(_lower(fault["msg"]) for fault in error.errors(include_url=False))
            faults.append(f"{what}, argument {name!r}: {said}, got {value!r}")
    return faults


def method_faults(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the arguments of a method in the catalogue; it costs nothing to make one."""
    make, what = METHODS[name], f"method {name!r}"
    if faults := [*argument_faults(make, arguments, what), *value_faults(make, arguments, what)]:
        return faults
    try:
        make(**arguments)
    except (ValueError, TypeError) as error:
        return [f"{what}: {error}"]
    return []


def method_of(name: str, arguments: Mapping[str, Any]) -> Method | None:
    """Return the method with its arguments; None where `method_faults` would find something."""
    if name not in METHODS or method_faults(name, arguments):
        return None
    return METHODS[name](**arguments)


def handed_over(
    make: Callable[..., Any], arguments: Mapping[str, Any], classes: int, channels: int
) -> dict[str, Any]:
    """Return `arguments` and, under the names that `make` has for them, the numbers of classes and channels.

    What is in `arguments` goes first. Nothing is added for `**kwargs`: they do not tell which names they take.

    >>> handed_over(lambda num_classes, width: None, {"width": 8}, 10, 3)
    {'num_classes': 10, 'width': 8}
    """
    takes = _parameters(make)
    given: dict[str, Any] = {}
    for names, number in ((CLASSES, classes), (CHANNELS, channels)):
        name = next((name for name in names if name in takes), None)
        if name is not None:
            given[name] = number
    return {**given, **arguments}


def takes_classes(make: Callable[..., Any]) -> bool:
    """Return whether the function is told for how many classes its network is to be."""
    return any(name in CLASSES for name in _parameters(make))


def missing_arguments(make: Callable[..., Any], given: Mapping[str, Any]) -> list[str]:
    """Return the names of arguments without a default that are not given."""
    return [
        name
        for name, p in _parameters(make).items()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and name not in given
    ]


def _parameters(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    for is_evaluated in (True, False):
        try:
            return inspect.signature(make, eval_str=is_evaluated).parameters
        except (NameError, TypeError, AttributeError, SyntaxError):
            continue  # annotations that only a type checker can read
        except ValueError:
            break
    return {}  # builtins such as dict do not tell what they take


def _is_plain(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return all(_is_plain(part) for part in get_args(annotation))
    return get_origin(annotation) is Literal or annotation in PLAIN


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
