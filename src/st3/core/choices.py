"""What the arguments of `sparsify` may be, one by one and together, with a sentence for each fault.

Nearly everything goes with everything; what does not is refused here with the reason, for specs as well.
"""

import math
from numbers import Integral, Real
from typing import Any

from ..registry import Registry
from .allocations import ALLOCATIONS, Allocation
from .method import METHODS, FixedMask, GroupMethod, MaskMethod, Method, ThresholdMethod
from .ramps import RAMPS, Ramp

__all__ = [
    "check_count",
    "check_sparsity",
    "contradictions",
    "resolve_allocation",
    "resolve_method",
    "resolve_sparsity",
]


def check_sparsity(sparsity: float, name: str, *, ramped: bool = True) -> None:
    if isinstance(sparsity, bool) or not isinstance(sparsity, Real):
        raise TypeError(f"{name} must be a number from 0 up to 1, got {sparsity!r}")
    if not 0.0 <= sparsity < 1.0:
        percentage = f" (a percentage? try {sparsity / 100:g})" if 1.0 < sparsity < 100.0 else ""
        raise ValueError(f"{name} must be at least 0 and below 1, got {sparsity!r}{percentage}")
    if not ramped:
        raise ValueError(f"{name} has no ramp to follow with sparsity=0: include that layer alone instead")


def check_count(number: int, name: str, *, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {number!r}")


def resolve_allocation(allocation: str | Allocation) -> Allocation:
    if isinstance(allocation, str):
        return ALLOCATIONS[allocation]()
    if isinstance(allocation, type) or not callable(allocation):
        raise TypeError(
            f"allocation must be a name ({', '.join(ALLOCATIONS)}) or an allocation object such as st3.Sigma(), "
            f"got {allocation!r}"
        )
    return allocation


def resolve_method(method: str | Method) -> Method:
    if isinstance(method, str):
        return METHODS[method]()
    if not isinstance(method, ThresholdMethod | GroupMethod | MaskMethod | FixedMask):
        raise TypeError(
            f"method must be a name ({', '.join(METHODS)}) or an object such as st3.ST3(), got {method!r}"
        )
    return method


def resolve_sparsity(sparsity: float | None, method: Method | None) -> float:
    """Return the target: what is given or, where the method implies one, that."""
    if sparsity is not None:
        check_sparsity(sparsity, "sparsity")
        return float(sparsity)
    own = None if method is None else method.own_sparsity
    if own is None:
        raise TypeError("sparsity is missing: give the fraction of zeros at the end, such as sparsity=0.9")
    return own


def contradictions(
    method: Method,
    *,
    sparsity: float | None = None,
    allocation: str | Allocation | None = None,
    ramp: str | Ramp | None = None,
    has_times: bool = False,
    has_floor: bool = False,
    has_own_layers: bool = False,
) -> list[str]:
    """Return a sentence for everything that was asked for and means nothing to the method.

    `has_times`, `has_floor`, `has_own_layers`: whether start or end, min_weights, layer_sparsity were given.
    """
    name, own = type(method).__name__, method.own_sparsity
    found = []
    if own is not None and sparsity is not None and not math.isclose(sparsity, own, rel_tol=1e-9):
        found.append(
            f"{method} has a sparsity of {own:g}, not {sparsity:g}: leave sparsity out, or change the method"
        )
    shared = _name_of(ALLOCATIONS, allocation)
    if method.only_allocations and shared is not None and shared not in method.only_allocations:
        instead = " or ".join(map(repr, method.only_allocations))
        why = f"{name} {method.why_only_allocations}, so allocation={shared!r} means nothing to it"
        found.append(f"{why}: leave it out, or take {instead}")
    rises = _name_of(RAMPS, ramp)
    if method.only_ramps and ramp is not None and rises not in method.only_ramps:
        found.append(f"{name} {method.why_only_ramps}, so ramp={ramp!r} means nothing to it: leave ramp out")
    if rises == "phases" and isinstance(method, MaskMethod) and not method.restores:
        found.append(f"{name} never restores what it has pruned, so ramp='phases' means nothing to it")
    if has_times and method.own_ramp(0.5, 1000) is not None:
        found.append(f"{name} sets the times of its ramp by settings of its own: leave start and end out")
    if isinstance(method, GroupMethod):
        given = {"min_weights": has_floor, "layer_sparsity": has_own_layers}
        found += [f"{name} {method.why_only_allocations}: leave {key} out" for key in given if given[key]]
    return found


def _name_of(registry: Registry[Any], chosen: object) -> str | None:
    """Return the name under which a choice, given by name or as an object, is registered; None if it is not."""
    if isinstance(chosen, str):
        return chosen
    return next((name for name in registry if registry[name] is type(chosen)), None)
