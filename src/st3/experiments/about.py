"""What a file of weights says about its model: taken only as far as it is what st3 writes."""

from collections.abc import Callable
from typing import Any

__all__ = ["understood"]


def understood(metadata: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the parts that can be used, and for every other one a few words on what is wrong with it.

    >>> understood({"model": {"name": "resnet20"}, "layers": "all"})
    ({'model': {'name': 'resnet20'}}, ['layers is no list of names'])
    """
    if not isinstance(metadata, dict):
        return {}, [f"a {type(metadata).__name__} instead of a table"]
    about, strange = dict(metadata), []
    for name, check in CHECKS.items():
        if about.get(name) is None:
            about.pop(name, None)
        elif fault := check(about[name]):
            strange.append(f"{name} {fault}")
            del about[name]
    return about, strange


def _model(part: Any) -> str:
    if fault := _named(part, "arguments"):
        return fault
    is_wrong = any(not _is_count(part[key]) for key in ("classes", "channels") if key in part)
    return "has numbers of classes and channels that are none" if is_wrong else ""


def _data(part: Any) -> str:
    if fault := _named(part, "options"):
        return fault
    if "classes" in part and not _are_names(part["classes"]):
        return "has classes that are no list of names"
    shape = part.get("shape")
    if "shape" in part and not (isinstance(shape, list) and len(shape) == 3 and all(map(_is_count, shape))):
        return "has a shape that is not channels, height, width"
    return ""


def _layers(part: Any) -> str:
    return "" if _are_names(part) else "is no list of names"


def _named(part: Any, settings: str) -> str:
    """Return what keeps the part from being a table with a name and, perhaps, settings."""
    if not isinstance(part, dict) or not isinstance(part.get("name"), str):
        return "has no name"
    return "" if isinstance(part.get(settings, {}), dict) else f"has {settings} that are no table"


def _are_names(part: Any) -> bool:
    return isinstance(part, list) and all(isinstance(name, str) for name in part)


def _is_count(part: Any) -> bool:
    return isinstance(part, int) and part > 0


CHECKS: dict[str, Callable[[Any], str]] = {"model": _model, "data": _data, "layers": _layers}
