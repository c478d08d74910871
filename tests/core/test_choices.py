"""What goes together and what does not: every refusal has its reason, every sensible combination trains."""

import pytest
import torch
from tests.tiny import TinyNet, sgd, train

import st3

STEPS = 12


def attach(method, **choice):
    model = TinyNet()
    optimizer = sgd(model.parameters())
    own = (method if not isinstance(method, str) else st3.core.method.METHODS[method]()).own_sparsity
    target = {} if own is not None else {"sparsity": 0.8}
    return (
        model,
        optimizer,
        st3.sparsify(model, optimizer, total_steps=STEPS, method=method, **{**target, **choice}),
    )


RANDOM = "begins with random masks, whose sizes say nothing about layers, so allocation="
GROUPS = "keeps n of every m weights in every layer"
ONE_SPARSITY = "keeps one sparsity from the first step to the last, so ramp="
REFUSED = [
    ("rigl", {"allocation": "global"}, f"RigL {RANDOM}'global' means nothing to it: leave it out, or take"),
    ("rigl", {"allocation": st3.allocations.Sigma()}, f"RigL {RANDOM}'sigma' means nothing to it"),
    ("set", {"allocation": "lamp"}, f"SET {RANDOM}'lamp' means nothing to it"),
    ("static", {"allocation": "sigma"}, f"Static {RANDOM}'sigma' means nothing to it"),
    ("rigl", {"ramp": "cubic"}, f"RigL {ONE_SPARSITY}'cubic' means nothing to it: leave ramp out"),
    ("set", {"ramp": lambda step: 0.8}, f"SET {ONE_SPARSITY}"),
    ("static", {"ramp": "linear"}, f"Static {ONE_SPARSITY}'linear'"),
    ("sr_ste", {"ramp": "cubic"}, f"SRSTE {ONE_SPARSITY}'cubic'"),
    ("sr_ste", {"allocation": "global"}, f"SRSTE {GROUPS}, so allocation='global' means nothing to it"),
    ("s_ste", {"allocation": st3.allocations.ERK()}, f"SSTE {GROUPS}, so allocation='erk' means nothing to it"),
    ("s_ste", {"min_weights": 3}, f"SSTE {GROUPS}: leave min_weights out"),
    ("sr_ste", {"layer_sparsity": {"deep": 0.5}}, f"SRSTE {GROUPS}: leave layer_sparsity out"),
    (
        "sr_ste",
        {"sparsity": 0.9},
        "SRSTE(n=2, m=4, decay=0.0002) has a sparsity of 0.5, not 0.9: leave sparsity out, or change the method",
    ),
    ("acdc", {"ramp": "cubic"}, "ACDC brings a ramp of its own, so ramp='cubic' means nothing to it"),
    ("acdc", {"start": 2}, "ACDC sets the times of its ramp by settings of its own: leave start and end out"),
    (
        "gmp",
        {"ramp": "phases"},
        "GMP never restores what it has pruned, so ramp='phases' means nothing to it",
    ),
    ("granet", {"ramp": "phases"}, "GraNet never restores what it has pruned"),
    ("st3", {"sparsity": None}, "sparsity is missing: give the fraction of zeros at the end, such as"),
]


@pytest.mark.parametrize(("method", "choice", "reason"), REFUSED)
def test_what_makes_no_sense_together_is_refused_with_the_reason(method, choice, reason):
    model = TinyNet()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = sgd(model.parameters())
    target = {} if method in ("sr_ste", "s_ste") else {"sparsity": 0.8}
    with pytest.raises((ValueError, TypeError)) as error:
        st3.sparsify(model, optimizer, total_steps=STEPS, method=method, **{**target, **choice})
    assert reason in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_everything_that_contradicts_a_method_is_said_at_once():
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
    ("acdc", {"allocation": "erk"}),
    ("acdc", {"ramp": "phases"}),
    ("acdc", {"ramp": st3.core.ramps.Phases(0.8, 2, 8, rounds=2, rest=1)}),
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


def test_allocations_and_ramps_of_ones_own_are_taken_at_their_word():
    def mine(pool, quota):
        return st3.allocations.Uniform()(pool, quota)

    attach("rigl", allocation=mine)
    attach("gmp", ramp=lambda step: 0.8 * min(1.0, step / 6))
