"""Method, ramp and allocation of a spec: each a name with arguments, from which the objects are built."""

from collections.abc import Mapping
from typing import Any

from ..core.budget.allocation import ALLOCATIONS
from ..core.budget.ramp import RAMPS, Ramp
from ..core.method import METHODS, Method
from ..registry import Registry
from ..training.recipe import Recipe

__all__ = ["CHOICES", "choose_ramp", "expand_choices", "name_and_arguments"]

CHOICES: dict[str, Registry[Any]] = {"method": METHODS, "ramp": RAMPS, "allocation": ALLOCATIONS}


def expand_choices(sparse: dict[str, Any]) -> None:
    """Replace every choice that is only a name by a table with that name; `arguments` are those of the method.

    >>> values = {"method": "gmp", "arguments": {"every": 10}, "sparsity": 0.9}
    >>> expand_choices(values)
    >>> values
    {'method': {'name': 'gmp', 'arguments': {'every': 10}}, 'sparsity': 0.9}
    """
    for key in CHOICES:
        if isinstance(sparse.get(key), str):
            sparse[key] = {"name": sparse[key]}
    if isinstance(sparse.get("arguments"), dict) and isinstance(sparse.setdefault("method", {}), dict):
        method = sparse["method"]
        given = method.get("arguments", {})
        method["arguments"] = (given if isinstance(given, dict) else {}) | sparse.pop("arguments")


def name_and_arguments(sparse: Mapping[str, Any], key: str) -> tuple[Any, dict[str, Any]]:
    """Return a choice of the values of a spec, not yet validated; the name is None if there is none."""
    choice = sparse.get(key)
    if not isinstance(choice, Mapping):
        return choice, {}
    arguments = choice.get("arguments", {})
    return choice.get("name"), arguments if isinstance(arguments, dict) else {}


def choose_ramp(name: str, arguments: Mapping[str, Any], method: Method, recipe: Recipe) -> Ramp:
    """Return the ramp of a run.

    Its times are those among its arguments; else those that the method declares, such as ProbMask's; else the recipe's,
    which are in epochs.
    """
    if method.own_ramp is not None and name == method.usual_ramp:
        return method.own_ramp
    kind = RAMPS[name]
    if not getattr(kind, "takes_usual_times", False):
        return kind(**arguments)
    start, end = method.usual_times or usual_times(recipe)
    return kind(**{"start": start, "end": end, **arguments})


def usual_times(recipe: Recipe) -> tuple[float, float]:
    """Return when the recipe's ramp begins and ends, as fractions of the run."""
    return recipe.ramp.start / recipe.epochs, recipe.ramp.end / recipe.epochs
