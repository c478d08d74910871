"""Specs as earlier versions wrote them, translated to today's sections, so that old run folders stay readable."""

from collections.abc import Mapping
from typing import Any

from ..core.method import METHODS
from .sparse_choices import expand_choices

__all__ = ["translate_spec"]


def translate_spec(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a spec.json with `protocol` and `part` in the place of what came before them.

    Until these sections existed, `dense_twin` was true for a run with a dense twin, `cycles` held the settings of a run
    in cycles, and `cycle` the number of a cycle, in the cycle's own spec. An unset `clip_rms`, a setting that is gone,
    is left out. ValueError says that these are no spec.

    >>> translate_spec({"dense_twin": True, "cycles": None, "cycle": None})
    {'protocol': {'name': 'twin', 'arguments': {}}}
    """
    try:
        return _translate(values)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"its sections cannot be understood ({type(error).__name__}: {error})") from None


def _translate(values: Mapping[str, Any]) -> dict[str, Any]:
    new = dict(values)
    if isinstance(new.get("recipe"), dict) and new["recipe"].get("clip_rms", "") is None:
        new["recipe"] = {key: value for key, value in new["recipe"].items() if key != "clip_rms"}
    if isinstance(new.get("sparse"), dict):
        new["sparse"] = _translate_sparse(new["sparse"], new.get("recipe"))
    has_twin, cycles, number = (new.pop(key, None) for key in ("dense_twin", "cycles", "cycle"))
    if len(new) == len(values):
        return new
    name, arguments = "twin" if has_twin else "single", {}
    if isinstance(cycles, dict) and number is None:
        name, arguments = "lrr", cycles
    elif isinstance(cycles, dict) and isinstance(number, int):
        epochs = new["recipe"]["epochs"]
        new["part"] = {
            "title": f"cycle {number}",
            "first_epoch": 0 if cycles.get("reset_seed") else number * epochs,
            "begins_sparse": number > 0,
            "hands_over": cycles.get("carry", "last"),
        }
    return new | {"protocol": {"name": name, "arguments": arguments}}


def _translate_sparse(values: Mapping[str, Any], recipe: Any) -> dict[str, Any]:
    """Return the section `sparse` with choices as tables, and `keep_dense` among `exclude`.

    Until then the recipe's times held for every ramp, also for methods that now have times of their own, and for
    "constant".
    """
    new = dict(values)
    is_old = isinstance(new.get("method"), str)
    expand_choices(new)
    if "keep_dense" in new:
        ends = {"first": "first layer", "last": "last layer"}
        dense = [ends.get(name, name) for name in new.pop("keep_dense") or ()]
        new["exclude"] = [*(new.get("exclude") or ()), *dense]
    name = str(new["method"]["name"]) if is_old else ""
    if name in METHODS and isinstance(recipe, dict) and isinstance(new.get("ramp"), dict):
        times = {key: recipe["ramp"][key] / recipe["epochs"] for key in ("start", "end")}
        kind, method = new["ramp"]["name"], METHODS[name]()
        if kind in ("cubic", "linear") and method.usual_times is not None:
            new["ramp"] = {"name": kind, "arguments": times}
        elif (
            kind == "constant"
            and not method.only_ramps
            and method.usual_ramp != "constant"
            and times["start"]
        ):
            new["ramp"] = {"name": kind, "arguments": {"start": times["start"]}}
    return new
