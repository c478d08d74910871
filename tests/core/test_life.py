"""The life of a run: at the target, frozen, detached, finalized; a copy made sparse; layers that collapse; reports."""

import copy
import gc
import math
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.tiny import (
    SPARSITY,
    STEPS,
    TinyNet,
    adam,
    assert_same,
    batch,
    cubic,
    footprint,
    raw_weights,
    sgd,
    sparse_names,
    sparsify,
    train,
    zeros,
    zeros_asked,
)
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import st3

FILTERS_MAY_GO = pytest.mark.filterwarnings("ignore::st3.errors.LayerCollapseWarning")


def start(**changes: Any) -> tuple[TinyNet, Optimizer, st3.Sparsifier]:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    return model, optimizer, sparsify(model, optimizer, **changes)


def trained(**changes: Any) -> tuple[TinyNet, Optimizer, st3.Sparsifier]:
    model, optimizer, sparsifier = start(**changes)
    train(model, optimizer, STEPS)
    return model, optimizer, sparsifier


def sparse_model() -> TinyNet:
    """Return a model with 80 % zeros that no sparsifier knows of."""
    model = TinyNet(seed=3)
    for name in sparse_names(model):
        weight = model.get_parameter(name).data
        weight[weight.abs() <= weight.abs().quantile(SPARSITY)] = 0.0
    return model


def masks(model: nn.Module) -> dict[str, Tensor]:
    return {name: model.get_parameter(name).detach() != 0 for name in sparse_names(model)}


# ---------------------------------------------------------------- at the target


def test_at_target_turns_true_when_the_ramp_has_ended_and_stays_so() -> None:
    model, optimizer, sparsifier = start()
    seen = [sparsifier.at_target]
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        seen.append(sparsifier.at_target)
        assert sparsifier.at_target == (zeros(model) == zeros_asked(model))
    assert seen == [False] * 6 + [True] * 7


def test_a_finalized_run_is_at_its_target() -> None:
    _, _, sparsifier = trained()
    sparsifier.finalize()
    assert sparsifier.at_target


def test_a_run_that_was_frozen_below_its_target_is_never_at_target() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 3)
    sparsifier.freeze()
    train(model, optimizer, range(3, STEPS))
    assert zeros(model) < zeros_asked(model)
    assert not sparsifier.at_target


def test_the_step_count_is_still_known_after_finalize() -> None:
    _, _, sparsifier = trained()
    sparsifier.finalize()
    assert sparsifier.step == STEPS


# ---------------------------------------------------------------- freeze


@pytest.mark.parametrize("make", [sgd, lambda p: sgd(p, nesterov=True), adam, torch.optim.AdamW])
def test_a_frozen_mask_stays_while_active_weights_train(make: Callable[..., Optimizer]) -> None:
    model = TinyNet()
    optimizer = make(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, 7)
    weights, before = {n: p.detach().clone() for n, p in model.named_parameters()}, masks(model)
    sparsifier.freeze()
    assert sparsifier.is_frozen
    assert_same(dict(model.named_parameters()), {n: nn.Parameter(p) for n, p in weights.items()})
    for number in range(7, STEPS):
        train(model, optimizer, range(number, number + 1))
        assert_same(masks(model), before)
    assert not torch.equal(model.deep.weight, weights["deep.weight"])
    assert sparsifier.step == STEPS
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_freezing_twice_is_freezing_once() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 7)
    sparsifier.freeze()
    before = footprint(model, optimizer)
    sparsifier.freeze()
    assert_same(footprint(model, optimizer), before)


def test_a_frozen_layer_holds_a_mask_instead_of_a_raw_weight() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 7)
    sparsifier.freeze()
    state = optimizer.state[model.deep.weight]
    assert set(state) == {"momentum_buffer", "st3_mask"}
    assert torch.equal(state["st3_mask"], model.deep.weight != 0)
    assert (state["momentum_buffer"][~state["st3_mask"]] == 0).all()


def test_clipping_sees_no_gradient_of_frozen_zeros() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 7)
    sparsifier.freeze()
    pictures, classes = batch(7)
    F.cross_entropy(model(pictures), classes).backward()
    grad = model.deep.weight.grad
    assert grad is not None
    assert (grad[model.deep.weight == 0] == 0).all()
    assert (grad[model.deep.weight != 0] != 0).any()


# ---------------------------------------------------------------- keep_mask

KEEPERS: dict[str, Callable[..., Optimizer]] = {
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "SGD with weight decay": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    "SGD fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1, fused=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adam fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.001, momentum=0.5),
}


@pytest.mark.parametrize("make", KEEPERS.values(), ids=KEEPERS)
def test_fine_tuning_revives_no_zero(make: Callable[..., Optimizer]) -> None:
    model = sparse_model()
    before, weights = masks(model), model.deep.weight.detach().clone()
    optimizer = make(model.parameters())
    sparsifier = st3.keep_mask(model, optimizer)
    assert sparsifier.at_target
    train(model, optimizer, STEPS)
    assert_same(masks(model), before)
    assert not torch.equal(model.deep.weight, weights)
    assert sparsifier.finalize() is model
    assert_same(masks(model), before)


@pytest.mark.parametrize("make", [KEEPERS["SGD with momentum"], KEEPERS["Adam"]], ids=["SGD", "Adam"])
def test_momentum_from_before_revives_no_zero(make: Callable[..., Optimizer]) -> None:
    model = TinyNet(seed=3)
    optimizer = make(model.parameters())
    train(model, optimizer, 5)
    with torch.no_grad():
        for name in sparse_names(model):  # pruned behind the optimizer's back
            weight = model.get_parameter(name)
            weight[weight.abs() <= weight.abs().quantile(SPARSITY)] = 0.0
    before = masks(model)
    st3.keep_mask(model, optimizer)
    train(model, optimizer, STEPS)
    assert_same(masks(model), before)


def test_active_weights_train_as_masked_training_would_have_it() -> None:
    model, reference = sparse_model(), sparse_model()
    keep = masks(reference)
    optimizer, its_optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.optim.SGD(reference.parameters(), lr=0.1),
    )
    st3.keep_mask(model, optimizer)
    train(model, optimizer, STEPS)
    for number in range(STEPS):
        train(reference, its_optimizer, range(number, number + 1))
        with torch.no_grad():
            for name, mask in keep.items():
                reference.get_parameter(name).mul_(mask)
    assert_same(model.state_dict(), reference.state_dict())


def test_a_dense_layer_stays_dense_and_a_dense_model_is_refused() -> None:
    model = sparse_model()
    nn.init.normal_(model.head.weight)
    optimizer = sgd(model.parameters())
    sparsifier = st3.keep_mask(model, optimizer)
    train(model, optimizer, STEPS)
    assert (model.head.weight != 0).all()
    sparsifier.finalize()

    dense = TinyNet()
    optimizer = sgd(dense.parameters())
    with pytest.raises(ValueError, match=r"keep_mask found no zero.*load the sparse weights first"):
        st3.keep_mask(dense, optimizer)


def test_keep_mask_works_with_a_single_zero() -> None:
    model = TinyNet()
    model.head.weight.data[0, 0] = 0.0
    optimizer = sgd(model.parameters())
    sparsifier = st3.keep_mask(model, optimizer)
    train(model, optimizer, STEPS)
    assert zeros(sparsifier.finalize()) == 1


def test_layers_left_out_of_keep_mask_train_freely() -> None:
    model = sparse_model()
    optimizer = sgd(model.parameters())
    st3.keep_mask(model, optimizer, exclude="deep")
    train(model, optimizer, STEPS)
    assert (model.conv.weight == 0).any()
    assert (model.deep.weight == 0).float().mean() < SPARSITY / 2


def test_an_infinite_gradient_of_a_kept_zero_changes_nothing() -> None:
    model = nn.Linear(3, 1, bias=False)
    model.weight.data.copy_(torch.tensor([[0.0, 1.0, 2.0]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    st3.keep_mask(model, optimizer)
    model.weight.backward(torch.tensor([[float("inf"), 1.0, 0.0]]))
    assert model.weight.grad.tolist() == [[0.0, 1.0, 0.0]]  # nor would it survive in the momentum
    optimizer.step()
    assert model.weight.tolist() == [[0.0, 0.5, 2.0]]


def test_a_fine_tuning_run_resumes_by_keep_mask() -> None:
    model = sparse_model()
    optimizer = adam(model.parameters())
    st3.keep_mask(model, optimizer)
    train(model, optimizer, 4)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    losses = train(model, optimizer, range(4, STEPS))
    other = TinyNet(seed=99)
    its_optimizer = adam(other.parameters())
    other.load_state_dict(saved[0])
    its_optimizer.load_state_dict(saved[1])
    st3.keep_mask(other, its_optimizer)
    assert train(other, its_optimizer, range(4, STEPS)) == losses
    assert_same(other.state_dict(), model.state_dict())


def test_keep_mask_goes_on_from_a_run_that_was_never_finalized() -> None:
    model, optimizer, _ = trained()
    twin, its_optimizer = copy.deepcopy(
        (model, optimizer)
    )  # as loaded from a checkpoint: raw weights in the state
    before = masks(twin)
    st3.keep_mask(twin, its_optimizer)
    assert set(its_optimizer.state[twin.deep.weight]) == {"momentum_buffer", "st3_mask"}
    train(twin, its_optimizer, range(STEPS, STEPS + 3))
    assert_same(masks(twin), before)
    tuned = twin.deep.weight.detach().clone()
    third, optimizer_3 = copy.deepcopy((twin, its_optimizer))
    assert sparsify(third, optimizer_3).is_frozen
    assert torch.equal(third.deep.weight, tuned)  # not the raw weights from before fine-tuning


# ---------------------------------------------------------------- detach


@pytest.mark.parametrize(
    "make", [sgd, adam, lambda p: torch.optim.SGD(p, lr=0.1)], ids=["SGD", "Adam", "plain SGD"]
)
@pytest.mark.parametrize(
    "method", [st3.methods.ST3(), st3.methods.ST3(straight_through=False)], ids=["straight", "not straight"]
)
def test_detach_brings_the_raw_weights_back_and_leaves_nothing(
    make: Callable[..., Optimizer], method: st3.methods.ST3
) -> None:
    model, plain = TinyNet(), TinyNet()
    optimizer, plain_optimizer = make(model.parameters()), make(plain.parameters())
    untouched = footprint(model, optimizer)["hooks"]
    sparsifier = sparsify(model, optimizer, method=method)
    train(model, optimizer, 5)
    train(plain, plain_optimizer, 5)
    raws = raw_weights(model, optimizer)
    assert set(raws) == set(sparse_names(model))
    sparsifier.detach()
    assert_same({n: model.get_parameter(n).detach() for n in raws}, raws)
    left = footprint(model, optimizer)
    assert left["hooks"] == untouched
    expected = plain_optimizer.state_dict()
    found = optimizer.state_dict()
    assert found["param_groups"] == expected["param_groups"]
    assert {key: set(state) for key, state in found["state"].items() if state} == {
        key: set(state) for key, state in expected["state"].items() if state
    }
    sparsifier.detach()
    assert_same(footprint(model, optimizer), left)


@pytest.mark.parametrize("ramp", ["cubic", "constant"])
def test_detaching_right_after_attaching_restores_the_model(ramp: str) -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    before = footprint(model, optimizer)
    sparsify(model, optimizer, ramp=ramp).detach()
    assert_same(footprint(model, optimizer), before)


def test_after_detach_the_optimizer_trains_a_plain_dense_model() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 7)
    sparsifier.detach()
    train(model, optimizer, range(7, 9))
    assert zeros(model) == 0
    assert "st3_raw" not in optimizer.state[model.deep.weight]
    sparsify(model, optimizer)  # and may be sparsified again


@pytest.mark.parametrize("call", ["freeze", "adopt", "finalize"])
def test_a_detached_sparsifier_says_so(call: str) -> None:
    _, _, sparsifier = start()
    sparsifier.detach()
    assert not sparsifier.is_attached
    with pytest.raises(
        RuntimeError, match=f"cannot {call}: this sparsifier is detached; call sparsify or keep_mask"
    ):
        getattr(sparsifier, call)()


# ---------------------------------------------------------------- finalize


def test_finalize_gives_the_same_model_plain_and_exactly_sparse() -> None:
    model, optimizer, sparsifier = trained()
    outputs = model.eval()(batch(0)[0])
    before = footprint(TinyNet(), sgd(TinyNet().parameters()))["hooks"]
    assert sparsifier.finalize() is model
    assert zeros(model) == zeros_asked(model)
    assert torch.equal(model(batch(0)[0]), outputs)
    assert all("st3_raw" not in state for state in optimizer.state.values())
    assert all("st3_step" not in group for group in optimizer.param_groups)
    hooks = footprint(model, optimizer)["hooks"]
    assert hooks[1:] == before[1:]  # but for the step pre-hook that guards the zeros
    assert not sparsifier.is_attached


def test_finalize_again_changes_nothing() -> None:
    model, optimizer, sparsifier = trained()
    sparsifier.finalize()
    before = footprint(model, optimizer)
    assert sparsifier.finalize() is model
    assert_same(footprint(model, optimizer), before)


def test_finalize_before_the_end_of_the_ramp_raises_and_the_run_may_go_on() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 3)
    before = footprint(model, optimizer)
    with pytest.raises(st3.errors.TargetMissedError) as error:
        sparsifier.finalize()
    found, asked = zeros(model), zeros_asked(model)
    assert str(error.value) == (
        f"target sparsity 0.8 was missed: {found:,} of 1,456 weights are zero, a sparsity of {found / 1456:.6f}; "
        f"{asked:,} were asked for; training stopped at step 3, before the ramp's end: train longer or lower "
        f"total_steps (it counts calls of optimizer.step: with gradient accumulation there are fewer of them than "
        f"batches)"
    )
    assert_same(footprint(model, optimizer), before)
    assert sparsifier.is_attached
    train(model, optimizer, range(3, STEPS))
    assert zeros(sparsifier.finalize()) == asked


class WithSpare(TinyNet):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(40, 40)


def test_a_layer_that_never_got_a_gradient_is_named_by_finalize() -> None:
    model = WithSpare()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, STEPS)
    with pytest.warns(
        st3.errors.CoverageWarning,
        match=r"^no gradient ever reached 'spare\.weight', whose zeros count towards the target: exclude such layers$",
    ) as warned:
        sparsifier.finalize()
    assert warned[0].filename == __file__
    assert zeros(model) == zeros_asked(model)
    assert not any("st3_waiting" in group for group in optimizer.param_groups)


def test_finalize_names_a_layer_that_is_no_longer_in_the_model() -> None:
    model, _, sparsifier = trained()
    model.deep = nn.Conv2d(8, 16, 3, padding=1)
    with pytest.raises(
        RuntimeError, match=r"^the model no longer holds 'deep\.weight' as sparsified \(1 of 3 layers\)"
    ):
        sparsifier.finalize()
    assert sparsifier.is_attached


def test_finalize_names_the_layer_that_missed_a_sparsity_of_its_own() -> None:
    model = WithSpare()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer, layer_sparsity={"spare": 0.5})
    sparsifier.freeze()
    train(model, optimizer, STEPS)
    with pytest.raises(
        st3.errors.TargetMissedError, match=r"layer 'spare\.weight' has 0 zeros, 800 were asked for"
    ):
        sparsifier.finalize()


def test_finalize_after_freezing_too_early_says_so() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 3)
    sparsifier.freeze()
    train(model, optimizer, range(3, STEPS))
    with pytest.raises(st3.errors.TargetMissedError, match="frozen"):
        sparsifier.finalize()


def test_finalize_finds_zeros_that_were_filled_from_outside() -> None:
    model, _, sparsifier = trained()
    with torch.no_grad():
        model.deep.weight.add_(1.0)
    with pytest.raises(st3.errors.TargetMissedError, match="1,165 were asked for"):
        sparsifier.finalize()


def test_after_finalize_a_step_raises_until_somebody_says_what_is_meant() -> None:
    model, optimizer, sparsifier = trained()
    sparsifier.finalize()
    before = dict(model.named_parameters()), zeros(model)
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match=r"finalized.*would fill its zeros.*st3\.keep_mask.*st3\.sparsify.*detach\(\)"
        ):
            train(model, optimizer, 1)
        optimizer.zero_grad()
    assert (dict(model.named_parameters()), zeros(model)) == before


def test_after_finalize_keep_mask_fine_tunes() -> None:
    model, optimizer, sparsifier = trained()
    before = masks(sparsifier.finalize())
    tuner = st3.keep_mask(model, optimizer)
    train(model, optimizer, range(STEPS, STEPS + 5))
    assert tuner.step == 5
    assert_same(masks(tuner.finalize()), before)


def test_after_finalize_keep_mask_fine_tunes_with_a_new_optimizer() -> None:
    model, _, sparsifier = trained()
    before = masks(sparsifier.finalize())
    optimizer = adam(model.parameters())
    st3.keep_mask(model, optimizer)
    train(model, optimizer, range(STEPS, STEPS + 5))
    assert_same(masks(model), before)


def test_after_finalize_keep_mask_may_leave_a_layer_out() -> None:
    model, optimizer, sparsifier = trained()
    before = masks(sparsifier.finalize())
    st3.keep_mask(model, optimizer, exclude="head")
    train(model, optimizer, range(STEPS, STEPS + 5))
    assert torch.equal(model.deep.weight != 0, before["deep.weight"])
    assert (model.head.weight != 0).sum() > before["head.weight"].sum()


def test_after_finalize_and_detach_the_model_trains_freely_from_its_sparse_weights() -> None:
    model, optimizer, sparsifier = trained()
    weights = {n: p.detach().clone() for n, p in sparsifier.finalize().named_parameters()}
    sparsifier.detach()
    assert_same({n: p.detach() for n, p in model.named_parameters()}, weights)
    train(model, optimizer, 1)
    assert zeros(model) < zeros_asked(model) / 2


def test_the_guard_stays_when_sparsifying_anew_is_refused() -> None:
    model, optimizer, sparsifier = trained()
    sparsifier.finalize()
    with pytest.raises(ValueError, match="at least 140 weights per layer are to stay"):
        sparsify(model, optimizer, min_weights=140)
    with pytest.raises(RuntimeError, match="would fill its zeros"):
        train(model, optimizer, 1)
    assert zeros(model) == zeros_asked(model)


def test_a_finalized_model_sparsified_again_does_not_train_before_adopt() -> None:
    model, optimizer, sparsifier = trained()
    sparsifier.finalize()
    again = sparsify(model, optimizer)
    with pytest.raises(ValueError, match=r"the optimizer holds no raw weights.*from_sparse=True"):
        train(model, optimizer, 1)
    assert zeros(model) == zeros_asked(model)
    optimizer.zero_grad()
    again.adopt()
    train(model, optimizer, STEPS)
    assert zeros(again.finalize()) == zeros_asked(model)


# ---------------------------------------------------------------- a copy with weights of its own


@pytest.mark.parametrize("finalized", [False, True])
@pytest.mark.parametrize("allocation", ["global", "sigma", "uniform", "erk"])
def test_an_average_of_the_weights_is_made_exactly_as_sparse(allocation: str, finalized: bool) -> None:
    model, optimizer, sparsifier = start(allocation=allocation)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        average.update_parameters(model)
    weights = {n: p.detach().clone() for n, p in average.module.named_parameters()}
    assert zeros(average.module) < zeros_asked(model)
    if finalized:
        sparsifier.finalize()
    live = footprint(model, optimizer)
    reached = sparsifier.apply_to(average)
    assert zeros(average.module) == zeros_asked(model)
    assert reached == zeros_asked(model) / 1456
    for name, parameter in average.module.named_parameters():
        kept = parameter != 0
        assert torch.equal(parameter[kept], weights[name][kept])  # the largest stay as they are
    assert_same(footprint(model, optimizer), live)
    assert sparsifier.apply_to(average) == reached


def test_a_copy_in_bfloat16_is_made_exactly_as_sparse_although_many_weights_are_tied() -> None:
    model = TinyNet().bfloat16()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, STEPS)
    other = TinyNet(seed=5).bfloat16()
    sparsifier.apply_to(other)
    assert zeros(other) == zeros_asked(other)


def test_in_mid_ramp_a_copy_is_made_as_sparse_as_the_model_is_then() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 3)
    other = TinyNet(seed=5)
    sparsifier.apply_to(other)
    assert zeros(other) == zeros(model) == zeros_asked(model, sparsifier.asked(3))


def test_the_largest_weights_of_the_copy_are_kept() -> None:
    model, _, sparsifier = trained()
    other = TinyNet(seed=5)
    magnitudes = torch.cat([other.get_parameter(n).detach().abs().flatten() for n in sparse_names(other)])
    sparsifier.apply_to(other)
    smallest = min(p[p != 0].abs().min() for p in map(other.get_parameter, sparse_names(other)))
    assert smallest == magnitudes.sort(descending=True).values[1456 - zeros_asked(model) - 1]


def test_a_different_model_is_refused_and_left_alone() -> None:
    _, _, sparsifier = trained()
    other = nn.Sequential(nn.Linear(3, 3))
    before = footprint(other)
    with pytest.raises(
        LookupError, match=r"the other model has no weight 'conv\.weight'.*it is not a copy of this one"
    ):
        sparsifier.apply_to(other)
    assert_same(footprint(other), before)


# ---------------------------------------------------------------- adopt


def test_adopt_takes_the_weights_of_the_model_for_raw_weights() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 4)
    model.load_state_dict(TinyNet(seed=5).state_dict())
    new = {n: model.get_parameter(n).detach().clone() for n in sparse_names(model)}
    sparsifier.adopt()
    assert_same(raw_weights(model, optimizer), new)
    assert zeros(model) == zeros_asked(model, sparsifier.asked(4))
    assert sparsifier.step == 4
    train(model, optimizer, range(4, STEPS))
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_adopt_in_a_frozen_run_takes_the_new_mask() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 7)
    sparsifier.freeze()
    other = sparse_model()
    model.load_state_dict(other.state_dict())
    sparsifier.adopt()
    train(model, optimizer, range(7, STEPS))
    assert_same(masks(model), masks(other))


# ---------------------------------------------------------------- budgets


def test_every_layer_keeps_its_least_number_of_weights() -> None:
    model = TinyNet()
    with torch.no_grad():
        model.conv.weight.mul_(1e-3)  # would lose everything
    optimizer = sgd(model.parameters(), lr=1e-5)
    sparsifier = sparsify(model, optimizer, min_weights=50)
    train(model, optimizer, STEPS)
    assert int((model.conv.weight != 0).sum()) == 50
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_a_least_number_beyond_a_layers_size_keeps_it_dense() -> None:
    model, _, sparsifier = trained(min_weights=144, sparsity=0.6)
    assert (model.conv.weight != 0).all()
    assert int((model.head.weight != 0).sum()) >= 144
    assert zeros(sparsifier.finalize()) == zeros_asked(model, 0.6)


@FILTERS_MAY_GO
def test_a_layer_may_have_a_sparsity_of_its_own() -> None:
    model, optimizer, sparsifier = start(layer_sparsity={"head": 0.5})
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        now = sparsifier.asked(number + 1)
        head = int((model.head.weight == 0).sum())
        assert head == math.floor(159 * 0.5 * now / SPARSITY) + 1
        assert zeros(model) - head == math.floor(1295 * now) + 1
    sparsifier.finalize()


@FILTERS_MAY_GO
@pytest.mark.parametrize(
    ("exclude", "dense"),
    [
        ("deep", "deep"),
        (st3.FIRST, "conv"),
        (st3.LAST, "head"),
        (nn.Linear, "head"),
        (["co*", st3.LAST], "conv head"),
    ],
)
def test_excluded_layers_stay_dense_and_leave_the_budget(exclude: Any, dense: str) -> None:
    model, _, sparsifier = trained(exclude=exclude)
    names = [f"{name}.weight" for name in dense.split()]
    assert all((model.get_parameter(name) != 0).all() for name in names)
    covered = [name for name in sparse_names(model) if name not in names]
    assert [layer.name for layer in sparsifier.layers] == covered
    weights = sum(model.get_parameter(name).numel() for name in covered)
    sparsifier.finalize()
    assert zeros(model) == math.floor((weights - 1) * SPARSITY) + 1


# ---------------------------------------------------------------- collapse


def collapsing(**changes: Any) -> tuple[TinyNet, Optimizer, st3.Sparsifier]:
    """Return a net whose weights in 'deep' are so small that a global threshold takes them all."""
    model = TinyNet()
    with torch.no_grad():
        model.deep.weight.mul_(1e-4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    return (
        model,
        optimizer,
        sparsify(model, optimizer, **{"total_steps": 30, "ramp": cubic(0, 10, 30), **changes}),
    )


@pytest.mark.parametrize(
    "method",
    [
        st3.methods.ST3(),
        st3.methods.ST3(exact_rescale=True),
        st3.methods.ST3(soft=False),
        st3.methods.Feather(),
    ],
    ids=str,
)
def test_a_layer_without_active_weights_gives_a_warning_and_no_nan(method: Any) -> None:
    model, optimizer, _ = collapsing(method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, 19)
    with pytest.warns(st3.errors.LayerCollapseWarning) as caught:
        train(model, optimizer, range(19, 20))
    assert (model.deep.weight == 0).all()
    assert len(caught) == 1
    assert str(caught[0].message).startswith("layer 'deep.weight' has no active weight left at step 20: ")
    for way_out in ("lower the sparsity", "min_weights", "allocation='erk'", "exclude the layer"):
        assert way_out in str(caught[0].message)
    losses = train(model, optimizer, range(20, 30))
    assert all(map(math.isfinite, losses))
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert all(torch.isfinite(raw).all() for raw in raw_weights(model, optimizer).values())


def test_a_collapsed_layer_gives_one_warning() -> None:
    model, optimizer, sparsifier = collapsing(total_steps=60)
    with pytest.warns(st3.errors.LayerCollapseWarning):
        train(model, optimizer, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, range(20, 60))
        sparsifier.finalize()


def test_filters_without_active_weights_are_counted_by_layer() -> None:
    model = TinyNet()
    with torch.no_grad():
        model.deep.weight[[3, 5]] *= 1e-4
        model.head.weight[7] *= 1e-4
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    sparsifier = sparsify(model, optimizer, sparsity=0.5)
    train(model, optimizer, STEPS)
    with pytest.warns(st3.errors.LayerCollapseWarning) as caught:
        sparsifier.finalize()
    assert len(caught) == 1
    message = str(caught[0].message)
    assert f"at step {STEPS} " in message
    assert "'deep.weight' (2 of 16), 'head.weight' (1 of 10)" in message
    assert "lower the sparsity" in message


def test_finalize_warns_of_a_layer_that_collapsed_between_two_looks() -> None:
    model, optimizer, sparsifier = collapsing(total_steps=STEPS)
    train(model, optimizer, STEPS)
    with pytest.warns(
        st3.errors.LayerCollapseWarning, match=r"layer 'deep\.weight' has no active weight left at step 12"
    ):
        sparsifier.finalize()


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "method", [st3.methods.ST3(), st3.methods.ST3(straight_through=False)], ids=["straight", "not straight"]
)
def test_nothing_of_a_run_is_kept_alive_once_its_owner_lets_go(method: st3.methods.ST3) -> None:
    model, optimizer, sparsifier = start(method=method)
    train(model, optimizer, 3)
    watched = [weakref.ref(thing) for thing in (model.deep.weight, optimizer, sparsifier)]
    del model, optimizer, sparsifier
    gc.collect()
    assert [reference() for reference in watched] == [None, None, None]


def test_the_sparsifier_need_not_be_kept() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsify(model, optimizer)
    gc.collect()
    train(model, optimizer, STEPS)
    assert zeros(model) == zeros_asked(model)


# ---------------------------------------------------------------- reports


def test_a_report_can_be_had_at_any_moment() -> None:
    model, optimizer, sparsifier = start()
    reports = [sparsifier.report()]
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        reports.append(sparsifier.report())
        assert reports[-1].zeros == zeros(model)
    assert [report.step for report in reports] == list(range(STEPS + 1))
    assert reports[0].zeros == 0
    assert all(report.target == SPARSITY for report in reports)
    sparsifier.finalize()
    final = sparsifier.report(batch(0)[0])
    assert final.zeros == zeros_asked(model)
    assert final.dense_macs == 8 * 4 * 4 * (144 + 1152) + 8 * 160
    assert final.sparse_macs is not None
    assert final.sparse_macs < final.dense_macs
    assert st3.report(model).zeros == final.zeros


def test_a_report_shows_the_threshold_of_each_layer() -> None:
    model, optimizer, sparsifier = start(allocation="sigma")
    assert all(row.threshold is None for row in sparsifier.report().rows)
    assert set(sparsifier.thresholds.values()) == {0.0}
    train(model, optimizer, 3)
    rows = {row.name: row.threshold for row in sparsifier.report().rows}
    assert rows == sparsifier.thresholds
    for name, raw in raw_weights(model, optimizer).items():
        assert int((raw.abs() <= rows[name]).sum()) == int((model.get_parameter(name) == 0).sum())


def test_a_report_changes_nothing() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 3)
    before = footprint(model, optimizer)
    str(sparsifier.report(batch(0)[0]))
    repr(sparsifier)
    assert_same(footprint(model, optimizer), before)


def test_a_detached_model_is_reported_as_dense() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 7)
    sparsifier.detach()
    report = sparsifier.report()
    assert report.zeros == 0
    assert report.step == 7
    assert all(row.threshold is None for row in report.rows)


def test_repr_tells_method_allocation_ramp_and_where_the_run_is() -> None:
    model, optimizer, sparsifier = start(allocation="sigma", method=st3.methods.ST3(rescale=False))
    head = (
        "Sparsifier(ST3(soft=True, rescale=False, straight_through=True, exact_rescale=False), "
        "Sigma(factor='shape'), Cubic(start=0.0, end=0.5), {})"
    )
    first, *rest = repr(sparsifier).splitlines()
    assert first == head.format("step 0")
    assert any(line.startswith("deep.weight") and "1,152" in line for line in rest)
    train(model, optimizer, STEPS)
    assert repr(sparsifier).startswith(head.format("step 12"))
    sparsifier.finalize()
    assert repr(sparsifier).startswith(head.format("finalized"))
    other, its_optimizer, detached = start()
    train(other, its_optimizer, 2)
    detached.detach()
    assert ", detached)" in repr(detached).splitlines()[0]


def test_the_layers_print_as_a_table_with_reasons() -> None:
    _, _, sparsifier = start(exclude=st3.LAST)
    text = str(sparsifier.layers)
    assert "deep.weight  Conv2d  16x8x3x3    1,152  sparsified" in text
    assert "skipped: excluded: the last layer" in text
    assert text.endswith("2 layers with 1,296 weights sparsified")
