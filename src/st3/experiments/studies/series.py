"""The curves of the paper's figures: each a method with its settings, under one name in all studies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..protocols import PROTOCOLS

__all__ = ["Series"]


@dataclass(frozen=True)
class Series:
    """One curve: how its runs are trained."""

    name: str
    label: str
    method: str | Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)  # allocation, ramp, ...: of the section `sparse`
    protocol: Mapping[str, Any] = field(default_factory=lambda: {"name": "single"})
    sparsities: tuple[float | None, ...] | None = (
        None  # None: those of the budget; (None,): the protocol says it
    )
    times: int = 1  # as many epochs as usual, times this
    recipe: str | None = None  # None: the one of the budget
    windows: int = 0  # in which the switches of every weight are counted

    @property
    def is_one_run(self) -> bool:
        """Whether one run has the points of all sparsities up to the last: cycles."""
        name = str(self.protocol["name"])
        return name in PROTOCOLS and not PROTOCOLS[name].trains_itself


def st3_with(**switches: bool) -> dict[str, Any]:
    return {"name": "st3", "arguments": switches}


DENSE = Series("dense", "dense", "dense")
ST3 = Series("st3", "ST-3", "st3")
SIGMA = Series("st3-sigma", "ST-3σ", "st3", {"allocation": "sigma"})
ERK = Series("st3-erk", "ST-3, ERK", "st3", {"allocation": "erk"})
GMP = Series("gmp", "GMP", "gmp")
SOFT = Series("soft", "STR (soft thresholding, the same ramp)", "soft")
PROBMASK = Series("probmask", "ProbMask", "probmask")
GRANET = Series("granet", "GraNet", "granet")
FEATHER = Series("feather", "Feather", "feather")
TOPK = Series("topk", "TopK", "topk")
PDP = Series("pdp", "PDP", "pdp")

# The switches of ST-3, one by one.
HARD = Series("hard", "hard, straight-through", st3_with(soft=False, rescale=False))
HARD_RESCALE = Series("hard-rescale", "hard, straight-through, rescale", st3_with(soft=False))
SOFT_STE = Series("soft-ste", "soft, straight-through", st3_with(rescale=False))
SOFT_RESCALE = Series("soft-rescale", "soft, rescale", st3_with(straight_through=False))

# The same with LAMP, which scores weights within their layers.
LAMP = {"allocation": "lamp"}
ST3_LAMP = Series("st3-lamp", "ST-3, LAMP", "st3", LAMP)
HARD_LAMP = Series("hard-lamp", "hard, straight-through, LAMP", HARD.method, LAMP)
HARD_RESCALE_LAMP = Series(
    "hard-rescale-lamp", "hard, straight-through, rescale, LAMP", HARD_RESCALE.method, LAMP
)
SOFT_STE_LAMP = Series("soft-ste-lamp", "soft, straight-through, LAMP", SOFT_STE.method, LAMP)

# Cycles, each pruning 20 % of the rest.
LRR = Series("lrr", "LRR", "gmp", protocol={"name": "lrr"})
LRR_RESET = Series(
    "lrr-reset",
    "LRR, the same pictures in each cycle",
    "gmp",
    protocol={"name": "lrr", "arguments": {"reset_seed": True}},
)
LRR_ST3 = Series("lrr-st3", "LRR + ST-3", "st3", {"ramp": "constant"}, {"name": "lrr"})

# Methods that only published points have.
PUBLISHED_LABELS = {"dnw": "DNW", "rigl": "RigL", "rigl-erk": "RigL + ERK", "str": "STR", "gmp": "GMP"}
PUBLISHED_LABELS |= {series.name: series.label for series in (GRANET, PROBMASK)}
