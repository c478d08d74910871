"""The metadata in a file of weights: checked before use, since anybody may have written the file."""

from collections.abc import Callable
from typing import Any

from ..training.tasks import TASKS

__all__ = ["check_metadata"]


def check_metadata(metadata: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the parts that can be used, and a few words on what is wrong with each of the others.

    >>> check_metadata({"model": {"name": "resnet20"}, "layers": "all"})
    ({'model': {'name': 'resnet20'}}, ['layers is not a list of names'])
    """
    if not isinstance(metadata, dict):
        return {}, [f"a {type(metadata).__name__} instead of a table"]
    about, faults = dict(metadata), []
    for name, check in CHECKS.items():
        if about.get(name) is None:
            about.pop(name, None)
        elif fault := check(about[name]):
            faults.append(f"{name} {fault}")
            del about[name]
    return about, faults


def _model_fault(part: Any) -> str:
    if fault := _table_fault(part, "arguments"):
        return fault
    sizes = [names[0] for name in TASKS for names in (TASKS[name].class_names, TASKS[name].size_names)]
    wrong = [key for key in sizes if key in part and not _is_count(part[key])]
    return f"has {' or '.join(wrong)} that are not positive integers" if wrong else ""


def _data_fault(part: Any) -> str:
    if fault := _table_fault(part, "options"):
        return fault
    if "classes" in part and not _are_names(part["classes"]):
        return "has classes that are not a list of names"
    shape = part.get("shape")
    lengths = {len(TASKS[name].usual_shape) for name in TASKS}
    if "shape" in part and not (
        isinstance(shape, list) and len(shape) in lengths and all(map(_is_count, shape))
    ):
        return f"has a shape that neither {' nor '.join(TASKS[name].examples for name in TASKS)} have"
    return ""


def _task_fault(part: Any) -> str:
    return "" if part in [*TASKS] else "is not a known one"


def _layers_fault(part: Any) -> str:
    return "" if _are_names(part) else "is not a list of names"


def _table_fault(part: Any, settings: str) -> str:
    """Return what is wrong with a table that needs a name and may have settings; empty if nothing is."""
    if not isinstance(part, dict) or not isinstance(part.get("name"), str):
        return "has no name"
    return "" if isinstance(part.get(settings, {}), dict) else f"has {settings} that are not a table"


def _are_names(part: Any) -> bool:
    return isinstance(part, list) and all(isinstance(name, str) for name in part)


def _is_count(part: Any) -> bool:
    return isinstance(part, int) and part > 0


CHECKS: dict[str, Callable[[Any], str]] = {
    "model": _model_fault,
    "data": _data_fault,
    "layers": _layers_fault,
    "task": _task_fault,
}
