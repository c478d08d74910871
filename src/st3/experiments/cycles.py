"""Training in cycles: how sparse each of them is, what their number means, which methods make sense inside.

LRR (Renda, Frankle & Carbin, ICLR 2020) trains the dense network by the whole recipe, prunes a part of the remaining
weights, rewinds the learning rate and trains again, and so on. Here a cycle keeps one sparsity, given by a constant
ramp, and any method that can begin from trained weights may keep it: fixed masks are LRR, ST-3 is LRR+ST-3.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.method import METHODS
from ..registry import suggest

if TYPE_CHECKING:
    from .spec import Spec

__all__ = [
    "PROTOCOLS",
    "PRUNE",
    "USUAL_METHOD",
    "apply_count",
    "cycle_faults",
    "cycle_folder",
    "cycle_sparsities",
    "unknown_protocol",
]

PROTOCOLS = {
    "single": "One training cycle, in which the ramp raises the sparsity.",
    "lrr": "Cycles: a dense one, then each time 20 % of the remaining weights less and the learning rate rewound.",
}
PRUNE = 0.2  # of the remaining weights, after each cycle
USUAL_METHOD = "gmp"  # at constant sparsity its masks never change: that is LRR

# Why some methods cannot be inside. They choose their masks by something else than the weights that a cycle hands on,
# or follow a timetable or a sparsity of their own.
_RANDOM = "it begins each cycle with random masks, whatever the cycle before has learned"
_PATTERN = "its pattern fixes the sparsity, which cannot rise from cycle to cycle"
_PHASES = "it has phases or a ramp of its own within a training, and a cycle keeps one sparsity"
SENSELESS = {
    "rigl": _RANDOM,
    "set": _RANDOM,
    "static": _RANDOM,
    "granet": "it exchanges weights by gradient while a ramp rises, and a cycle has no ramp",
    "str": "it learns its thresholds and has no target, so that a cycle could not ask for a sparsity",
    "probmask": "it learns probabilities and ends by sampling a mask: no trained weights are handed on that tell which "
    "to prune",
    "acdc": _PHASES,
    "sr_ste": _PATTERN,
    "s_ste": _PATTERN,
}


def cycle_sparsities(target: float, prune: float = PRUNE) -> list[float]:
    """Return the sparsity of every cycle: 0, then `prune` of the remaining weights less each time; last the target.

    >>> [round(sparsity, 4) for sparsity in cycle_sparsities(0.5)]
    [0.0, 0.2, 0.36, 0.488, 0.5]
    """
    found = [0.0]
    # A target of 1 - 0.8^k is met by k prunings, not by k + 1, however it was rounded.
    while _after(len(found), prune) < target - 1e-9 * (1.0 - target):
        found.append(_after(len(found), prune))
    return [*found, target]


def _after(prunings: int, prune: float) -> float:
    """Return the sparsity after so many prunings: 0.2, not 0.19999999999999996, which may zero one weight less."""
    return round(1.0 - (1.0 - prune) ** prunings, 12)


def cycle_folder(number: int) -> str:
    """Return the name of a cycle's folder inside that of the run."""
    return f"cycle-{number:02}"


def apply_count(values: Mapping[str, Any], faults: list[str]) -> None:
    """Replace the number of cycles, if there is one, by the sparsity that it leads to: a run needs one of them."""
    cycles, sparse = values.get("cycles"), values.get("sparse")
    if not isinstance(cycles, dict) or not isinstance(sparse, dict) or cycles.get("count") is None:
        return
    count, prune, asked = cycles.pop("count"), cycles.get("prune", PRUNE), sparse.get("sparsity")
    if isinstance(count, bool) or not isinstance(count, int) or count < 2:
        faults.append(f"cycles must be a whole number of at least 2 (the first one is dense), got {count!r}")
        return
    if not isinstance(prune, int | float) or not 0 < prune < 1:
        return  # told by those who check the types
    ends = _after(count - 1, float(prune))
    if isinstance(asked, int | float) and not math.isclose(float(asked), ends, rel_tol=1e-9):
        faults.append(
            f"{count} cycles that prune {prune:g} of the remaining weights end at sparsity {ends:.6g}, not at "
            f"{float(asked):g}: give the number of cycles or the sparsity"
        )
    sparse["sparsity"] = ends


def cycle_faults(spec: "Spec") -> list[str]:
    """Return what speaks against training this in cycles."""
    faults = []
    if spec.cycle is not None:
        faults.append(
            f"this is cycle {spec.cycle} of a run in cycles: resume the run, in the folder above, not the cycle"
        )
    if spec.cycles is None or spec.cycle is not None:
        return faults
    name = spec.sparse.method
    if spec.sparse.is_dense:
        faults.append("method 'dense' leaves nothing to prune from cycle to cycle: leave out one of them")
    elif spec.sparse.sparsity == 0:
        faults.append("cycles need a sparsity above 0: at 0 there is the dense cycle only")
    if spec.dense_twin:
        faults.append("cycles need no dense twin: the first of them is dense")
    if why := _senseless(name):
        faults.append(f"method {name!r} makes no sense in cycles: {why}; try gmp (LRR), st3 or feather")
    elif spec.sparse.ramp != "constant":
        faults.append(f"a cycle keeps one sparsity: no ramp {spec.sparse.ramp!r}, leave it out")
    return faults


def unknown_protocol(name: str) -> str:
    return f"unknown protocol {name!r}{suggest(name, PROTOCOLS)} (known: {', '.join(PROTOCOLS)})"


def _senseless(name: str) -> str:
    if name in SENSELESS:
        return SENSELESS[name]
    if name in METHODS:
        ramps = METHODS[name]().only_ramps
        if ramps and "constant" not in ramps:
            return _PHASES
    return ""
