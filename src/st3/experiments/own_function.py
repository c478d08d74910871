"""A function of the user's by the name package.module:function."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..training.sections import SettingsError
from .messages import passed_on

__all__ = ["imported", "name_fault"]


def name_fault(name: str) -> str:
    """Return what is wrong with such a name; an empty text if nothing is.

    >>> name_fault("my_networks:tiny")
    ''
    """
    module, _, function = name.partition(":")
    if function and all(module.split(".")):
        return ""
    return f"{name!r} is not of the form package.module:function, such as my_networks:tiny"


def imported(name: str) -> Callable[..., Any]:
    """Import what makes a network; modules of the current folder are found."""
    if fault := name_fault(name):
        raise SettingsError("model", [fault])
    module_name, _, function = name.partition(":")
    module = _module(module_name, name)
    try:
        made = getattr(module, function)
    except AttributeError:
        raise SettingsError("model", [f"{name!r}: module {module_name!r} has no {function!r}"]) from None
    if not callable(made):
        raise SettingsError(
            "model", [f"{name!r} is a {type(made).__name__}, not a function that makes a network"]
        )
    return made  # type: ignore[no-any-return]


def _module(module_name: str, name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        # It, or a package it lies in, is not there; or it is there, and fails.
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            said = f"no module {error.name!r} here or on Python's path"
        else:
            said = f"its module cannot be imported: {type(error).__name__}: {passed_on(error)}"
        raise SettingsError("model", [f"{name!r}: {said}"]) from error
