"""How sparse each cycle is, and what cannot be trained in cycles."""

import pytest

from st3.core.method import METHODS
from st3.core.selection.select import quota
from st3.experiments.cycles import cycle_sparsities
from st3.experiments.spec import compose
from st3.training.sections import SettingsError

# 1 - 0.8^k, k prunings of a fifth
LRR = [0.0, 0.2, 0.36, 0.488, 0.5904, 0.67232, 0.737856, 0.7902848, 0.83222784, 0.865782272, 0.8926258176]


def faults(**asked):
    with pytest.raises(SettingsError) as caught:
        compose(**asked)
    return list(caught.value.faults)


def test_each_cycle_prunes_a_fifth_of_the_remaining_weights():
    assert cycle_sparsities(LRR[-1]) == LRR
    assert cycle_sparsities(1 - 0.8**10) == [*LRR[:-1], 1 - 0.8**10]  # however the target was rounded
    assert len(cycle_sparsities(1 - 0.8**30)) == 31


def test_the_last_cycle_has_the_target_exactly():
    assert cycle_sparsities(0.9) == [*LRR, 0.9]
    assert cycle_sparsities(0.1) == [0.0, 0.1]
    assert cycle_sparsities(0.9, prune=0.5) == [0.0, 0.5, 0.75, 0.875, 0.9]


def test_a_sparsity_of_a_fifth_is_not_a_weight_short():
    assert quota(1456, cycle_sparsities(0.5)[1]).zeros == 292  # 1 - 0.8 would give 291


def test_a_number_of_cycles_means_the_sparsity_of_the_last():
    spec = compose(cycles={"count": 11})
    assert spec.sparse.sparsity == LRR[-1]
    assert [cycle.sparse.sparsity for cycle in spec.each_cycle()] == LRR
    assert spec == compose(cycles={}, sparse={"sparsity": LRR[-1]})
    assert compose(cycles={"count": 3, "prune": 0.5}).sparse.sparsity == 0.75
    assert compose(cycles={}, changes={"cycles.count": 3, "cycles.prune": 0.5}).sparse.sparsity == 0.75


def test_in_cycles_fixed_masks_a_constant_ramp_and_no_dense_twin_are_usual():
    spec = compose(cycles={})
    assert (spec.sparse.method, spec.sparse.ramp, spec.sparse.sparsity) == ("gmp", "constant", 0.9)
    assert not spec.dense_twin
    assert compose(cycles={}, sparse={"method": "st3"}).sparse.ramp == "constant"
    assert compose().cycles is None


def test_every_cycle_is_the_whole_recipe_sparse_from_the_first_step():
    spec = compose(data={"name": "cifar10"}, cycles={"count": 3}, sparse={"method": "st3"}, epochs=40)
    first, *others = spec.each_cycle()
    assert first.sparse.is_dense
    for number, cycle in enumerate(others, start=1):
        assert (cycle.cycle, cycle.recipe.epochs, cycle.recipe.ramp.start) == (number, 40, 0.0)
        assert cycle.recipe.rate == spec.recipe.rate
        assert cycle.sparse.method == "st3"


def test_a_spec_without_cycles_says_nothing_of_them_when_compared():
    assert not any("cycle" in key for key in compose().essence())
    assert "cycles.prune: 0.2, not None" in compose(cycles={}).differences(compose())


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_is_for_cycles_or_refused_with_a_reason(name):
    try:
        spec = compose(cycles={}, sparse={"method": name})
    except SettingsError as error:
        [fault] = [fault for fault in error.faults if "makes no sense in cycles" in fault]
        assert fault.startswith(f"method {name!r} makes no sense in cycles: it")
        assert fault.endswith("; try gmp (LRR), st3 or feather")
    else:
        assert spec.sparse.ramp == "constant"


@pytest.mark.parametrize("name", ["rigl", "set", "static", "granet"])
def test_methods_that_choose_masks_by_something_else_are_refused(name):
    [fault] = faults(cycles={}, sparse={"method": name})
    reason = "exchanges weights by gradient" if name == "granet" else "random masks"
    assert reason in fault


def test_all_faults_are_told_together():
    found = faults(
        cycles={"count": 3, "prunes": 0.1},
        sparse={"method": "rigl", "sparsity": 0.9, "allocation": "globl"},
        changes={"optimizer.lr": -1},
    )
    told = "\n".join(found)
    for part in (
        "3 cycles that prune 0.2 of the remaining weights end at sparsity 0.36, not at 0.9: give the number of cycles "
        "or the sparsity",
        "unknown key 'cycles.prunes'; did you mean 'prune'?",
        "recipe.optimizer.lr",
        "unknown allocation 'globl'",
    ):
        assert part in told
    found = faults(
        cycles={}, sparse={"method": "rigl", "ramp": "cubic"}, dense_twin=True, changes={"epochz": 3}
    )
    assert "cycles need no dense twin: the first of them is dense" in found
    assert any("method 'rigl' makes no sense in cycles" in fault for fault in found)
    assert any("epochz" in fault for fault in found)


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"cycles": {"count": 1}}, "cycles must be a whole number of at least 2 (the first one is dense), got 1"),
        ({"cycles": {"count": True}}, "cycles must be a whole number of at least 2 (the first one is dense), got True"),
        ({"cycles": {}, "sparse": {"ramp": "cubic"}}, "a cycle keeps one sparsity: no ramp 'cubic', leave it out"),
        ({"cycles": {}, "sparse": {"sparsity": 0.0}}, "cycles need a sparsity above 0: at 0 there is the dense cycle "
         "only"),
        ({"cycles": {}, "sparse": {"method": "dense"}}, "method 'dense' leaves nothing to prune from cycle to cycle: "
         "leave out one of them"),
        ({"changes": {"cycles.prune": 0.1}}, "cycles.prune is for training in cycles: add --protocol lrr or --cycles "
         "N"),
        ({"changes": {"cycle": 1}}, "this is cycle 1 of a run in cycles: resume the run, in the folder above, not the "
         "cycle"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_in_a_sentence(asked, fault):
    assert fault in faults(**asked)


def test_pruning_nothing_or_everything_is_refused():
    for prune in (0.0, 1.0, -0.1):
        assert any(fault.startswith("cycles.prune: ") for fault in faults(cycles={"prune": prune}))


def test_st3_long_is_the_recipe_for_any_number_of_epochs():
    """The paper's control of 4 x 160 epochs: one number, and everything keeps its place in the run."""
    recipe, long = (
        compose(data={"name": "cifar10"}, sparse={"sparsity": 0.6723}, epochs=epochs).recipe
        for epochs in (160, 640)
    )
    assert (recipe.ramp.start, recipe.ramp.end, recipe.rate.drops) == (5, 80, (80, 120))
    assert (long.epochs, long.ramp.start, long.ramp.end, long.rate.drops) == (640, 20, 320, (320, 480))
    assert long.model_copy(update={"epochs": 160, "rate": recipe.rate, "ramp": recipe.ramp}) == recipe
