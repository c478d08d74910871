"""Training in cycles: how sparse each cycle is, and what cannot be trained in cycles."""

import pytest

from st3.core.method import METHODS
from st3.core.selection.select import quota
from st3.experiments.essence import differences, essence
from st3.experiments.protocols.cycles import Cycles, cycle_sparsities
from st3.experiments.spec import compose
from st3.training.sections import SettingsError

# 1 - 0.8^k: after k prunings of a fifth
LRR = [0.0, 0.2, 0.36, 0.488, 0.5904, 0.67232, 0.737856, 0.7902848, 0.83222784, 0.865782272, 0.8926258176]


def compose_cycles(changes=None, sparse=None, **arguments):
    return compose(protocol={"name": "lrr", "arguments": arguments}, sparse=sparse, changes=changes)


def faults(**asked):
    with pytest.raises(SettingsError) as caught:
        compose_cycles(**asked)
    return list(caught.value.faults)


def cycles_of(spec):
    return [part.spec for part in Cycles(**spec.protocol.arguments).parts(spec)]


def test_each_cycle_prunes_a_fifth_of_the_remaining_weights():
    assert cycle_sparsities(LRR[-1]) == LRR
    assert cycle_sparsities(1 - 0.8**10) == [*LRR[:-1], 1 - 0.8**10]  # however the target was rounded
    assert len(cycle_sparsities(1 - 0.8**30)) == 31


def test_the_last_cycle_has_the_target_exactly():
    assert cycle_sparsities(0.9) == [*LRR, 0.9]
    assert cycle_sparsities(0.1) == [0.0, 0.1]
    assert cycle_sparsities(0.9, prune=0.5) == [0.0, 0.5, 0.75, 0.875, 0.9]


def test_a_sparsity_of_a_fifth_is_not_rounded_down():
    assert quota(1456, cycle_sparsities(0.5)[1]).zeros == 292  # 1 - 0.8 would give 291


def test_a_number_of_cycles_means_the_sparsity_of_the_last():
    spec = compose_cycles(count=11)
    assert spec.sparse.sparsity == LRR[-1]
    assert [cycle.sparse.sparsity for cycle in cycles_of(spec)] == LRR
    assert spec == compose_cycles(sparse={"sparsity": LRR[-1]})
    assert compose_cycles(count=3, prune=0.5).sparse.sparsity == 0.75
    changes = {"protocol.arguments.count": 3, "protocol.arguments.prune": 0.5}
    assert compose(protocol="lrr", changes=changes).sparse.sparsity == 0.75


def test_fixed_masks_and_a_constant_ramp_are_usual_in_cycles():
    spec = compose_cycles()
    assert (spec.sparse.method.name, spec.sparse.ramp.name, spec.sparse.sparsity) == ("gmp", "constant", 0.9)
    assert spec.protocol.arguments == {"prune": 0.2, "reset_seed": False, "carry": "last"}
    assert compose_cycles(sparse={"method": "st3"}).sparse.ramp.name == "constant"


def test_every_cycle_is_the_whole_recipe_sparse_from_the_first_step():
    protocol = {"name": "lrr", "arguments": {"count": 3}}
    spec = compose(data={"name": "cifar10"}, protocol=protocol, sparse={"method": "st3"}, epochs=40)
    first, *others = cycles_of(spec)
    assert first.sparse.is_dense
    for number, cycle in enumerate(others, start=1):
        assert (cycle.part.title, cycle.recipe, cycle.sparse.ramp.name) == (
            f"cycle {number}",
            spec.recipe,
            "constant",
        )
        assert (cycle.part.first_epoch, cycle.part.begins_sparse) == (40 * number, True)
        assert cycle.recipe.rate == spec.recipe.rate
        assert cycle.sparse.method.name == "st3"


def test_a_spec_without_cycles_does_not_mention_them_when_compared():
    single = compose(protocol="single", sparse={"method": "gmp"})
    assert not any("prune" in key for key in essence(single))
    found = differences(compose_cycles(prune=0.3), single)
    assert "protocol.name: 'lrr', not 'single'" in found
    assert "protocol.arguments.prune: 0.3, not None" in found


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_can_be_inside_or_declares_why_not(name):
    try:
        spec = compose_cycles(sparse={"method": name})
    except SettingsError as error:
        [fault] = [fault for fault in error.faults if "makes no sense in cycles" in fault]
        assert fault.startswith(
            f"method {name!r} makes no sense in cycles: {METHODS[name]().why_not_in_cycles}"
        )
        assert fault.endswith("; try gmp (LRR), st3 or feather")
    else:
        assert spec.sparse.ramp.name == "constant"


@pytest.mark.parametrize("name", ["rigl", "set", "static", "granet"])
def test_methods_that_do_not_choose_masks_by_trained_weights_are_refused(name):
    [fault] = faults(sparse={"method": name})
    reason = "exchanges weights by gradient" if name == "granet" else "random masks"
    assert reason in fault


def test_the_declaration_of_a_new_method_decides(monkeypatch):
    class Stubborn(METHODS["st3"]):
        why_not_in_cycles = "it forgets everything"

    monkeypatch.setitem(METHODS._things, "stubborn", Stubborn)
    reason = (
        "method 'stubborn' makes no sense in cycles: it forgets everything; try gmp (LRR), st3 or feather"
    )
    assert faults(sparse={"method": "stubborn"}) == [reason]


def test_all_faults_are_reported_together():
    found = faults(
        count=3,
        prunes=0.1,
        sparse={"method": "rigl", "sparsity": 0.9, "allocation": "globl"},
        changes={"optimizer.lr": -1},
    )
    text = "\n".join(found)
    for part in (
        "3 cycles that prune 0.2 of the remaining weights end at sparsity 0.36, not at 0.9: give the number of cycles "
        "or the sparsity",
        "protocol 'lrr' takes no argument 'prunes'; did you mean 'prune'? (known: prune, reset_seed, carry)",
        "recipe.optimizer.lr",
        "unknown allocation 'globl'",
    ):
        assert part in text
    found = faults(sparse={"method": "rigl", "ramp": "cubic"}, changes={"epochz": 3})
    assert any("method 'rigl' makes no sense in cycles" in fault for fault in found)
    assert any("epochz" in fault for fault in found)


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"count": 1}, "cycles must be a whole number from 2 (the first one is dense) to 1,000, got 1"),
        ({"count": True}, "cycles must be a whole number from 2 (the first one is dense) to 1,000, got True"),
        ({"sparse": {"ramp": "cubic"}}, "a cycle keeps one sparsity: leave out ramp 'cubic'"),
        ({"sparse": {"sparsity": 0.0}}, "cycles need a sparsity above 0: without one, the dense cycle is the only one"),
        ({"sparse": {"method": "dense"}}, "method 'dense' leaves nothing to prune from cycle to cycle: give another "
         "method"),
        ({"prune": 0.0}, "protocol 'lrr': prune must be above 0 and below 1, got 0"),
        ({"prune": 1.0}, "protocol 'lrr': prune must be above 0 and below 1, got 1"),
        ({"carry": "first"}, "protocol 'lrr', argument 'carry': input should be 'last' or 'best', got 'first'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_a_sentence(asked, fault):
    assert fault in faults(**asked)


def test_st3_long_is_the_recipe_scaled_to_any_number_of_epochs():
    """The paper's control of 4 x 160 epochs is one number; everything keeps its place in the run."""
    recipe, long = (
        compose(data={"name": "cifar10"}, sparse={"sparsity": 0.6723}, epochs=epochs).recipe
        for epochs in (160, 640)
    )
    assert (recipe.ramp.start, recipe.ramp.end, recipe.rate.drops) == (5, 80, (80, 120))
    assert (long.epochs, long.ramp.start, long.ramp.end, long.rate.drops) == (640, 20, 320, (320, 480))
    assert long.model_copy(update={"epochs": 160, "rate": recipe.rate, "ramp": recipe.ramp}) == recipe
