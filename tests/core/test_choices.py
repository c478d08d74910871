"""What goes together and what does not: every refusal has its reason, every sensible combination trains."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from tests.tiny import TinyNet, sgd, train

import st3
from st3.core.method import METHODS
from st3.ramps import Constant, Cubic, Phases

STEPS = 12


def attach(method, **choice):
    model = TinyNet()
    optimizer = sgd(model.parameters())
    return model, optimizer, st3.sparsify(model, optimizer, **settings(method, choice))


def settings(method, choice):
    """Return the arguments of a run of `method`; one that implies its sparsity is given none."""
    own = (METHODS[method]() if isinstance(method, str) else method).own_sparsity
    target = {} if own is not None else {"sparsity": 0.8}
    return {"total_steps": STEPS, "method": method, **target, **choice}


@dataclass(frozen=True)
class Mine(st3.allocations.Allocation):
    """An allocation of the user's own: uniform."""

    shares_by_shape: ClassVar[bool] = True

    def cut(self, pool, quota):
        return st3.allocations.Uniform().cut(pool, quota)


@dataclass(frozen=True)
class ByMagnitude(st3.allocations.Allocation):
    """An allocation of the user's own: global."""

    def cut(self, pool, quota):
        return st3.allocations.Global().cut(pool, quota)


def half(progress):
    return min(1.0, 2 * progress)


def dip(progress):
    return 0.2 if 0.5 <= progress < 0.7 else 1.0


RANDOM = "begins with random masks, which carry no information about which layers matter, so allocation="
GROUPS = "keeps n of every m weights in every layer"
ONE_SPARSITY = "keeps one sparsity from the first step to the last, so "
REFUSED = [
    (
        "rigl",
        {"allocation": "global"},
        f"RigL {RANDOM}'global' means nothing to it: leave it out, or take 'erk' or 'uniform'",
    ),
    ("rigl", {"allocation": st3.allocations.Sigma()}, f"RigL {RANDOM}'sigma' means nothing to it"),
    (
        "rigl",
        {"allocation": ByMagnitude()},
        f"RigL {RANDOM}ByMagnitude() means nothing to it: leave it out, or take 'erk' or 'uniform', or declare "
        "shares_by_shape if yours does",
    ),
    ("set", {"allocation": "lamp"}, f"SET {RANDOM}'lamp' means nothing to it"),
    ("static", {"allocation": "sigma"}, f"Static {RANDOM}'sigma' means nothing to it"),
    ("rigl", {"ramp": "cubic"}, f"RigL {ONE_SPARSITY}ramp='cubic' means nothing to it: leave ramp out"),
    (
        "rigl",
        {"ramp": Cubic(0, 1)},
        f"RigL {ONE_SPARSITY}ramp=Cubic(start=0, end=1) means nothing to it: leave ramp",
    ),
    ("rigl", {"ramp": Constant(start=0.5)}, f"RigL {ONE_SPARSITY}it cannot begin later: leave ramp out"),
    ("set", {"ramp": half}, f"SET {ONE_SPARSITY}ramp=<function half"),
    ("static", {"ramp": "linear"}, f"Static {ONE_SPARSITY}ramp='linear'"),
    ("sr_ste", {"ramp": "cubic"}, f"SRSTE {ONE_SPARSITY}ramp='cubic'"),
    ("sr_ste", {"ramp": Constant(start=0.5)}, f"SRSTE {ONE_SPARSITY}it cannot begin later: leave ramp out"),
    ("sr_ste", {"allocation": "global"}, f"SRSTE {GROUPS}, so allocation='global' means nothing to it"),
    (
        "sr_ste",
        {"allocation": Mine()},
        f"SRSTE {GROUPS}, so allocation=Mine() means nothing to it: leave it out",
    ),
    (
        "s_ste",
        {"allocation": st3.allocations.ERK()},
        f"SSTE {GROUPS}, so allocation='erk' means nothing to it",
    ),
    ("s_ste", {"min_weights": 3}, f"SSTE {GROUPS}: leave min_weights out"),
    ("sr_ste", {"layer_sparsity": {"deep": 0.5}}, f"SRSTE {GROUPS}: leave layer_sparsity out"),
    (
        "sr_ste",
        {"sparsity": 0.9},
        "SRSTE(n=2, m=4, decay=0.0002) has a sparsity of 0.5, not 0.9: leave sparsity out, or change the method",
    ),
    (
        "acdc",
        {"ramp": "cubic"},
        "ACDC brings a ramp of its own, so ramp='cubic' means nothing to it: leave ramp out",
    ),
    (
        "acdc",
        {"ramp": Phases(0.2, 0.7, rounds=2, rest=1)},
        "ACDC sets the times of its ramp by settings of its own: leave ramp out",
    ),
    (
        "gmp",
        {"ramp": "phases"},
        "GMP never restores what it has pruned, so ramp='phases' means nothing to it",
    ),
    (
        "gmp",
        {"ramp": Phases()},
        "GMP never restores what it has pruned, so ramp='phases' means nothing to it",
    ),
    (
        "gmp",
        {"ramp": dip},
        "GMP never restores what it has pruned, but the ramp Progress(function=<function dip",
    ),
    ("granet", {"ramp": dip}, "asks for a sparsity of 0.16 at step 6, less than before: let it rise only"),
    ("granet", {"ramp": "phases"}, "GraNet never restores what it has pruned"),
    ("probmask", {"allocation": "erk"}, "ProbMask learns how the sparsity is shared among the layers"),
    (
        "probmask",
        {"allocation": Mine()},
        "so allocation=Mine() means nothing to it: leave it out, or take 'global'",
    ),
    (
        "st3",
        {"layer_sparsity": {"*": 0.5}},
        "layer_sparsity names every layer, so that sparsity=0.8 is asked of none: leave one layer to it",
    ),
    (
        "st3",
        {"layer_sparsity": {"[cd]*": 0.5, "deep": 0.25}},
        "layer_sparsity['deep'] has no effect: names before it match the same layers; put it first",
    ),
    ("st3", {"from_sparse": "no"}, "from_sparse must be True or False, got 'no'"),
    ("st3", {"sparsity": None}, "sparsity is missing: give the fraction of zeros at the end, such as"),
    ("str", {"ramp": Cubic()}, "no sparsity can be asked of it: leave sparsity, ramp out"),
]


@pytest.mark.parametrize(("method", "choice", "reason"), REFUSED)
def test_what_makes_no_sense_together_is_refused_with_the_reason(method, choice, reason):
    model = TinyNet()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = sgd(model.parameters())
    with pytest.raises((ValueError, TypeError)) as error:
        st3.sparsify(model, optimizer, **settings(method, choice))
    assert reason in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_one_error_names_everything_that_contradicts_a_method():
    with pytest.raises(ValueError) as error:
        attach("sr_ste", sparsity=0.9, allocation="erk", ramp="cubic", min_weights=2)
    assert str(error.value).count("SRSTE") == 4


SENSIBLE = [
    *[("st3", {"allocation": name}) for name in ("erk", "lamp", "uniform", "sigma")],
    ("st3", {"ramp": "phases"}),
    ("gmp", {"allocation": "sigma"}),
    ("gmp", {"allocation": "uniform", "ramp": "linear"}),
    *[("feather", {"allocation": name}) for name in ("global", "erk", "lamp", "uniform", "sigma")],
    ("dnw", {"allocation": "sigma"}),
    ("dnw", {"ramp": "cubic"}),
    ("rigl", {"allocation": "erk"}),
    ("rigl", {"ramp": "constant"}),
    ("rigl", {"ramp": Constant()}),
    ("rigl", {"allocation": Mine()}),
    ("acdc", {"allocation": "erk"}),
    ("acdc", {"ramp": "phases"}),
    (st3.methods.ACDC(warm_up=0.2, until=0.7, rounds=2, rest=1), {}),
    ("st3", {"ramp": Phases(0.2, 0.7, rounds=2, rest=1)}),
    ("st3", {"ramp": Constant(start=0.5)}),
    ("st3", {"ramp": half, "allocation": Mine()}),
    ("st3", {"ramp": dip}),
    ("gmp", {"ramp": half}),
    ("granet", {"allocation": "erk"}),
    ("sr_ste", {"sparsity": 0.5, "allocation": "uniform"}),
    ("s_ste", {"ramp": "constant"}),
]


@pytest.mark.parametrize(("method", "choice"), SENSIBLE)
def test_what_makes_sense_together_reaches_its_target(method, choice):
    model, optimizer, sparsifier = attach(method, **choice)
    train(model, optimizer, STEPS)
    assert sparsifier.report().zeros >= sparsifier.sparsity * sum(x.numel for x in sparsifier.layers)
    sparsifier.finalize()


def test_a_ramp_of_a_method_by_its_name_has_the_times_of_its_settings():
    _, _, sparsifier = attach(st3.methods.ACDC(warm_up=0.2, until=0.7), ramp="phases")
    assert sparsifier.ramp == Phases(0.2, 0.7, rounds=7, rest=2)
