"""A function of the user's own, named as package.module:function."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..training.sections import SettingsError
from .messages import quote_error

__all__ = ["import_function", "name_fault"]


def name_fault(name: str) -> str:
    """Return what is wrong with such a name; empty if nothing is.

    >>> name_fault("my_networks:tiny")
    ''
    """
    module, _, function = name.partition(":")
    if function and all(module.split(".")):
        return ""
    return f"{name!r} is not of the form package.module:function, such as my_networks:tiny"


def import_function(name: str) -> Callable[..., Any]:
    """Import the function that builds a network; modules in the current folder are found."""
    if fault := name_fault(name):
        raise SettingsError("model", [fault])
    module_name, _, function = name.partition(":")
    module = _import_module(module_name, name)
    try:
        make = getattr(module, function)
    except AttributeError:
        raise SettingsError("model", [f"{name!r}: module {module_name!r} has no {function!r}"]) from None
    if not callable(make):
        raise SettingsError(
            "model", [f"{name!r} is of type {type(make).__name__}, not a function that builds a network"]
        )
    return make  # type: ignore[no-any-return]


def _import_module(module_name: str, name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        # Either the module or its package does not exist, or it exists and fails.
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            reason = f"no module {error.name!r} here or on Python's path"
        else:
            reason = f"its module cannot be imported: {type(error).__name__}: {quote_error(error)}"
        raise SettingsError("model", [f"{name!r}: {reason}"]) from error
