"""Check the arguments of functions, from the catalogues or the user's own, before anything is trained."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from ..registry import Registry, suggest
from ..training.tasks import Task

__all__ = [
    "add_sizes",
    "argument_faults",
    "build_or_none",
    "default_arguments",
    "missing_arguments",
    "object_faults",
    "takes_classes",
    "value_faults",
]

T = TypeVar("T")

PLAIN = (bool, int, float, str, type(None))


def argument_faults(
    make: Callable[..., Any], arguments: Mapping[str, Any], what: str, taken: tuple[str, ...] = ()
) -> list[str]:
    """Return a sentence for every argument that `make` does not take, or that is `taken`: filled in by st3."""
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
    """Return a sentence for every value that does not fit its annotation; only plain types are checked."""
    takes = _parameters(make)
    faults = []
    for name, value in arguments.items():
        if name not in takes or not _is_plain(takes[name].annotation):
            continue
        try:
            TypeAdapter(takes[name].annotation).validate_python(value, strict=True)
        except ValidationError as error:
            messages = " or ".join(_lower(fault["msg"]) for fault in error.errors(include_url=False))
            faults.append(f"{what}, argument {name!r}: {messages}, got {value!r}")
    return faults


def object_faults(registry: Registry[Any], name: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the arguments of a registered class, whose objects are cheap to make."""
    make, what = registry[name], f"{registry.kind} {name!r}"
    if faults := [*argument_faults(make, arguments, what), *value_faults(make, arguments, what)]:
        return faults
    try:
        make(**arguments)
    except (ValueError, TypeError, LookupError) as error:
        return [f"{what}: {error.args[0]}"]
    return []


def build_or_none(
    registry: Registry[Callable[..., T]] | Registry[type[T]], name: str, arguments: Mapping[str, Any]
) -> T | None:
    """Return the object with these arguments; None if the name is unknown or the arguments are wrong."""
    if name not in registry or object_faults(registry, name, arguments):
        return None
    return registry[name](**arguments)


@cache
def default_arguments(make: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the default values of a function's arguments.

    >>> dict(default_arguments(lambda width, depth=3: None))
    {'depth': 3}
    """
    found = {name: p.default for name, p in _parameters(make).items() if p.default is not p.empty}
    return MappingProxyType(found)


def add_sizes(
    make: Callable[..., Any], arguments: Mapping[str, Any], task: Task, classes: int, size: int
) -> dict[str, Any]:
    """Return `arguments`, the number of classes and the first size of an input, under the names that `make` has.

    Given `arguments` take precedence. Nothing is added for `**kwargs`, which do not reveal the names they accept.

    >>> from ..training.tasks import TASKS
    >>> add_sizes(lambda num_classes, width: None, {"width": 8}, TASKS["classification"], 10, 3)
    {'num_classes': 10, 'width': 8}
    """
    takes = _parameters(make)
    given: dict[str, Any] = {}
    for names, number in ((task.class_names, classes), (task.size_names, size)):
        name = next((name for name in names if name in takes), None)
        if name is not None:
            given[name] = number
    return {**given, **arguments}


def takes_classes(make: Callable[..., Any], task: Task) -> bool:
    """Return whether the function has an argument for the number of classes."""
    return any(name in task.class_names for name in _parameters(make))


def missing_arguments(make: Callable[..., Any], given: Mapping[str, Any]) -> list[str]:
    """Return the names of required arguments that are not given."""
    return [
        name
        for name, p in _parameters(make).items()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and name not in given
    ]


@cache
def _parameters(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    for is_evaluated in (True, False):
        try:
            return inspect.signature(make, eval_str=is_evaluated).parameters
        except (NameError, TypeError, AttributeError, SyntaxError):
            continue  # annotations that only a type checker can read
        except ValueError:
            break
    return {}  # builtins such as dict have no signature


def _is_plain(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return all(_is_plain(part) for part in get_args(annotation))
    return get_origin(annotation) is Literal or annotation in PLAIN


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
