"""What the arguments of `sparsify` may be, one by one and together, with a sentence for each fault.

Nearly all combinations work; the others are refused here with the reason, in specs as well.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from ..registry import Registry
from .budget.allocation import ALLOCATIONS, Allocation
from .budget.plan import Plan
from .budget.ramp import RAMPS, Ramp
from .layers.layer import Layer
from .method import METHODS, Method

__all__ = [
    "check_count",
    "check_flag",
    "check_layer_sparsity",
    "check_no_target",
    "check_plan",
    "check_sparsity",
    "find_contradictions",
    "fitting_allocations",
    "methods_with_blocks",
    "require_shared_budget",
    "resolve_block",
    "resolve_method",
    "resolve_sparsity",
]


def check_sparsity(sparsity: float, name: str) -> None:
    """Raise unless `sparsity` is a fraction of zeros, from 0 to below 1."""
    if isinstance(sparsity, bool) or not isinstance(sparsity, Real):
        raise TypeError(f"{name} must be a number from 0 up to 1, got {sparsity!r}")
    if not 0.0 <= sparsity < 1.0:
        percentage = f" (a percentage? try {sparsity / 100:g})" if 1.0 < sparsity < 100.0 else ""
        raise ValueError(f"{name} must be at least 0 and below 1, got {sparsity!r}{percentage}")


def check_layer_sparsity(layer_sparsity: Mapping[str, float] | None, target: float | None) -> None:
    """Raise unless it is a mapping of names to sparsities, and there is a ramp for them to follow."""
    if layer_sparsity is None:
        return
    if not isinstance(layer_sparsity, Mapping):
        raise TypeError(f"layer_sparsity takes a dict of names and sparsities, got {layer_sparsity!r}")
    for name, own in layer_sparsity.items():
        check_sparsity(own, f"layer_sparsity[{name!r}]")
        if target == 0:
            raise ValueError(
                f"layer_sparsity[{name!r}] has no ramp to follow with sparsity=0: include that layer alone instead"
            )


def require_shared_budget(layers: Sequence[Layer], sparsity: float | None) -> None:
    """Raise where all layers have a sparsity of their own: nothing is left that the target could be asked of."""
    if all(layer.sparsity is not None for layer in layers):
        raise ValueError(
            f"layer_sparsity names every layer, so that sparsity={sparsity} is asked of none: leave one layer to it, "
            f"with the sparsity that this layer is to have, or use allocation='uniform' for one sparsity everywhere"
        )


def check_count(number: int | None, name: str, *, least: int, meaning: str) -> None:
    """Raise unless `number` is a whole number of at least `least`."""
    if number is None:
        raise TypeError(f"{name} is missing: give {meaning}")
    if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {number!r}")


def resolve_block(block: int) -> int:
    """Return the number of weights that are zeroed together, checked."""
    check_count(block, "block", least=1, meaning="how many weights are zeroed together, or leave it out")
    return int(block)


def check_flag(value: bool, name: str) -> None:
    """Raise unless `value` is True or False: the text "no" would count as yes."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def resolve_method(method: str | Method) -> Method:
    """Return the method object for a name or an object."""
    if isinstance(method, str):
        return METHODS[method]()
    if not isinstance(method, Method):
        raise TypeError(
            f"method must be a name ({', '.join(METHODS)}) or an object such as st3.methods.ST3(), got {method!r}"
        )
    return method


def resolve_sparsity(sparsity: float | None, method: Method | None) -> float:
    """Return the target: the given one or, where the method implies one, that."""
    if sparsity is not None:
        check_sparsity(sparsity, "sparsity")
        return float(sparsity)
    own = None if method is None else method.own_sparsity
    if own is None:
        raise TypeError("sparsity is missing: give the fraction of zeros at the end, such as sparsity=0.9")
    return own


def check_no_target(method: Method, **given: object) -> None:
    """Raise where a target, or how to get there, is given to a method that cannot be asked for one."""
    if names := [name for name, value in given.items() if value is not None]:
        raise ValueError(
            f"{type(method).__name__} learns its thresholds, so that no sparsity can be asked of it: leave "
            f"{', '.join(names)} out; its settings and the weight decay decide, and report() tells what was reached"
        )


def check_plan(plan: Plan, method: Method) -> None:
    """Raise where the ramp does not reach the target in time, or asks for less again and the method cannot follow."""
    plan.check_ramp()
    fall = None if method.restores else plan.find_fall()
    if fall is not None:
        raise ValueError(
            f"{type(method).__name__} never restores what it has pruned, but the ramp {plan.ramp} asks for a sparsity "
            f"of {plan.asked(fall):.4g} at step {fall}, less than before: let it rise only"
        )
    last = method.search_end(plan.total_steps)
    if last is not None and not plan.is_reached(last):
        raise ValueError(
            f"{type(method).__name__} fixes its masks after step {last} of {plan.total_steps}, where the ramp asks for "
            f"{plan.asked(last):.4g} of {plan.sparsity:g} only: let the ramp end earlier, or lower finetune"
        )


def find_contradictions(
    method: Method,
    *,
    sparsity: float | None = None,
    allocation: str | Allocation | None = None,
    ramp: str | Ramp | Callable[[float], float] | None = None,
    block: int = 1,
    has_floor: bool = False,
    has_own_layers: bool = False,
) -> list[str]:
    """Return a sentence for everything that was asked for and means nothing to the method.

    `has_floor`, `has_own_layers`: whether min_weights, layer_sparsity were given.
    """
    name, own = type(method).__name__, method.own_sparsity
    found = []
    if own is not None and sparsity is not None and not math.isclose(sparsity, own, rel_tol=1e-9):
        found.append(
            f"{method} has a sparsity of {own:g}, not {sparsity:g}: leave sparsity out, or change the method"
        )
    shared = _name_of(ALLOCATIONS, allocation)
    if allocation is not None and not _fits(method, shared, allocation):
        instead = " or ".join(map(repr, fitting_allocations(method)))
        declare = "" if shared or not method.only_by_shape else ", or declare shares_by_shape if yours does"
        why = f"{name} {method.why_only_allocations}, so allocation={shared or allocation!r} means nothing to it"
        found.append(f"{why}: leave it out, or take {instead}{declare}")
    rises = _name_of(RAMPS, ramp)
    if method.only_ramps and ramp is not None and rises not in method.only_ramps:
        found.append(f"{name} {method.why_only_ramps}, so ramp={ramp!r} means nothing to it: leave ramp out")
    elif method.own_ramp is not None and isinstance(ramp, Ramp):
        found.append(f"{name} sets the times of its ramp by settings of its own: leave ramp out")
    elif rises == "constant" and "constant" in method.only_ramps and getattr(ramp, "start", 0.0) > 0:
        found.append(f"{name} {method.why_only_ramps}, so it cannot begin later: leave ramp out")
    kind = RAMPS[rises] if rises is not None and rises in RAMPS else type(ramp)
    if getattr(kind, "falls", False) and not method.restores:
        found.append(
            f"{name} never restores what it has pruned, so ramp={rises or ramp!r} means nothing to it"
        )
    target = sparsity if own is None else own
    if block > 1 and (why := method.why_not_in_blocks(target or 0.0)):
        instead = " or ".join(map(repr, methods_with_blocks(target or 0.0)))
        found.append(
            f"{name} {why}, so block={block} means nothing to it: leave block out, or take {instead}"
        )
    if not method.takes_floors:
        given = {"min_weights": has_floor, "layer_sparsity": has_own_layers}
        found += [f"{name} {method.why_only_allocations}: leave {key} out" for key in given if given[key]]
    return found


def methods_with_blocks(sparsity: float) -> list[str]:
    """Return the names of the methods that can zero weights in blocks, for this target sparsity."""
    return [name for name in METHODS if not METHODS[name]().why_not_in_blocks(sparsity)]


def fitting_allocations(method: Method) -> list[str]:
    """Return the names of the allocations that mean something to the method."""
    return [name for name in ALLOCATIONS if _fits(method, name, ALLOCATIONS[name])]


def _fits(method: Method, name: str | None, allocation: object) -> bool:
    """Whether an allocation, under this name if it has one, means something to the method."""
    if method.only_by_shape:
        kind = ALLOCATIONS[allocation] if isinstance(allocation, str) else allocation
        return bool(getattr(kind, "shares_by_shape", False))
    return not method.only_allocations or name in method.only_allocations


def _name_of(registry: Registry[Any], chosen: object) -> str | None:
    """Return the name under which a choice, given by name or as an object, is registered; None if it is not."""
    if isinstance(chosen, str):
        return chosen
    return next((name for name in registry if registry[name] is type(chosen)), None)
