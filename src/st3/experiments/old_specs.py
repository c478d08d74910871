"""Specs as earlier versions wrote them, translated to today's sections, so that old run folders stay readable."""

from collections.abc import Mapping
from typing import Any

__all__ = ["translate_spec"]


def translate_spec(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a spec.json with `protocol` and `part` in the place of what came before them.

    Until these sections existed, `dense_twin` was true for a run with a dense twin, `cycles` held the settings of a run
    in cycles, and `cycle` the number of a cycle, in the cycle's own spec.

    >>> translate_spec({"dense_twin": True, "cycles": None, "cycle": None})
    {'protocol': {'name': 'twin', 'arguments': {}}}
    """
    new = dict(values)
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
