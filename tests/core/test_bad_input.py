"""Wrong input gets one clear sentence: what was asked, what was found, where, and what to do.

Model and optimizer are left as they were.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.tiny import (
    STEPS,
    TinyNet,
    adam,
    assert_same,
    batch,
    cubic,
    footprint,
    raw_weights,
    sgd,
    sparsify,
    train,
    zeros,
    zeros_asked,
)
from torch import nn
from torch.optim import Optimizer

import st3

pytestmark = pytest.mark.filterwarnings(
    "ignore::st3.errors.LayerCollapseWarning"
)  # tiny layers lose filters easily


@contextmanager
def refused(
    model: nn.Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *parts: str,
    kind: type[Exception] = ValueError,
) -> Iterator[None]:
    """Expect an error that holds all `parts`, is one sentence, and leaves everything as it was."""
    many = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
    before = footprint(model, *many)
    with pytest.raises(kind) as error:
        yield
    message = str(error.value)
    for part in parts:
        assert part in message
    assert "\n" not in message
    assert_same(footprint(model, *many), before)


def start(**changes: Any) -> tuple[TinyNet, Optimizer, st3.Sparsifier]:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    return model, optimizer, sparsify(model, optimizer, **changes)


def check(
    *parts: str, kind: type[Exception] = ValueError, model: nn.Module | None = None, **changes: Any
) -> None:
    """Expect sparsify with these `changes` to be refused, on a fresh model and on one that has trained a little."""
    for steps in (0, 2):
        model = TinyNet() if model is None else model
        optimizer = sgd(model.parameters())
        if isinstance(model, TinyNet):
            train(model, optimizer, steps)
        with refused(model, optimizer, *parts, kind=kind):
            sparsify(model, optimizer, **changes)


# ---------------------------------------------------------------- sparsity


@pytest.mark.parametrize("percentage", [90, 95.5, 99])
def test_a_percentage_is_recognised(percentage: float) -> None:
    hint = f"(a percentage? try {percentage / 100:g})"
    check(f"sparsity must be at least 0 and below 1, got {percentage} {hint}", sparsity=percentage)


@pytest.mark.parametrize("sparsity", [1.0, 1, -0.1, 100, 250, float("nan"), float("inf")])
def test_a_sparsity_outside_of_zero_to_one_is_refused(sparsity: float) -> None:
    check(f"sparsity must be at least 0 and below 1, got {sparsity}", sparsity=sparsity)


@pytest.mark.parametrize("sparsity", [True, "x", "0.9", [0.9]])
def test_a_sparsity_must_be_a_number(sparsity: Any) -> None:
    check(f"sparsity must be a number from 0 up to 1, got {sparsity!r}", kind=TypeError, sparsity=sparsity)


def test_the_sparsity_of_a_single_layer_is_checked() -> None:
    check(
        "layer_sparsity['head'] must be at least 0 and below 1, got 50 (a percentage? try 0.5)",
        layer_sparsity={"head": 50},
    )
    check(
        "no weight of the model matches 'haed'",
        "near misses: head",
        kind=LookupError,
        layer_sparsity={"haed": 0.5},
    )


# ---------------------------------------------------------------- the length of the run


@pytest.mark.parametrize("steps", [0, -5, 10.0, True, "many"])
def test_total_steps_must_be_a_whole_number_of_at_least_one(steps: Any) -> None:
    check(f"total_steps must be a whole number of at least 1, got {steps!r}", total_steps=steps)


def test_a_missing_total_steps_is_called_missing() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    says = (
        "total_steps is missing: give the number of optimizer.step calls in the whole run, such as epochs * "
    )
    for given in ({}, {"total_steps": None}):
        with refused(model, optimizer, says, kind=TypeError):
            st3.sparsify(model, optimizer, sparsity=0.8, **given)


def test_a_run_of_a_single_step_is_possible_and_reaches_its_target() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=1)
    train(model, optimizer, 1)
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


@pytest.mark.parametrize("name", ["start", "end", "keep_dense"])
def test_arguments_that_moved_elsewhere_are_not_taken(name: str) -> None:
    check(f"unexpected keyword argument '{name}'", kind=TypeError, **{name: 0.5})


def test_a_function_as_ramp_must_reach_the_target() -> None:
    check(
        "has not reached the target at the end of the run, step 12",
        "sparsity would stop at 0.4 of 0.8; let it end earlier",
        ramp=lambda progress: 0.5,
    )


@pytest.mark.parametrize("ramp", [3, st3.ramps.Cubic])
def test_a_ramp_is_a_name_an_object_or_a_function(ramp: Any) -> None:
    check(
        "ramp must be a name (constant, cubic, linear, phases), an object such as st3.ramps.Cubic(",
        f"got {ramp!r}",
        kind=TypeError,
        ramp=ramp,
    )


def test_a_function_as_ramp_that_leaves_its_range_is_refused() -> None:
    check(
        "a ramp asks for a part of the target, from 0 to 1, but ",
        "asks for 1.5 at step 0 of 12",
        ramp=lambda progress: 1.5 if progress == 0 else 1.0,
    )
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsify(model, optimizer, ramp=lambda progress: 1.5 if progress == 0.25 else min(1.0, 2 * progress))
    train(model, optimizer, 2)
    with pytest.raises(ValueError, match=r"asks for 1\.5 at step 3 of 12"):
        train(model, optimizer, range(2, 3))


@pytest.mark.parametrize("least", [-1, 2.5, True, "few"])
def test_min_weights_must_be_a_whole_number(least: Any) -> None:
    check(f"min_weights must be a whole number of at least 0, got {least!r}", min_weights=least)


@pytest.mark.parametrize("ramp", ["cubic", "constant"])
def test_min_weights_beyond_the_target_are_refused_before_training(ramp: str) -> None:
    # Found in mid-ramp, it would cost the user the hours before.
    check(
        "at least 140 weights per layer are to stay, 420 in all, but only 291 of 1456 may",
        min_weights=140,
        ramp=ramp,
    )


@pytest.mark.parametrize("ramp", ["cubic", "constant"])
def test_an_allocation_that_cannot_reach_the_target_is_refused_before_training(ramp: str) -> None:
    check(
        "allocation 'lamp' keeps at least one weight in each of the 3 layers",
        allocation="lamp",
        sparsity=0.9995,
        ramp=ramp,
    )


def test_numpys_numbers_are_numbers() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(
        model,
        optimizer,
        sparsity=np.float32(0.5),
        total_steps=np.int64(STEPS),
        ramp=st3.ramps.Cubic(start=np.int64(0), end=np.float32(0.5)),
    )
    train(model, optimizer, STEPS)
    assert zeros(sparsifier.finalize()) == zeros_asked(model, 0.5)


# ---------------------------------------------------------------- names


def test_an_unknown_method_gets_a_suggestion() -> None:
    check(
        "unknown method 'fether'; did you mean 'feather'? (known: ",
        "st3",
        kind=LookupError,
        method="fether",
    )


def test_st3_sigma_is_method_and_allocation() -> None:
    check(
        "unknown method 'st3-sigma'; ST-3 sigma is method='st3' with allocation='sigma'",
        kind=LookupError,
        method="st3-sigma",
    )


def test_an_unknown_allocation_gets_a_suggestion() -> None:
    check(
        "unknown allocation 'unifrom'; did you mean 'uniform'? (known: erk, global, lamp, sigma, uniform)",
        kind=LookupError,
        allocation="unifrom",
    )


def test_an_unknown_ramp_gets_a_suggestion() -> None:
    check(
        "unknown ramp 'cubical'; did you mean 'cubic'? (known: constant, cubic, linear, phases)",
        kind=LookupError,
        ramp="cubical",
    )


@pytest.mark.parametrize("method", [st3.methods.ST3, 3, None])
def test_a_method_is_a_name_or_an_object(method: Any) -> None:
    check(
        "method must be a name", f"such as st3.methods.ST3(), got {method!r}", kind=TypeError, method=method
    )


@pytest.mark.parametrize("allocation", [st3.allocations.Sigma, 3])
def test_an_allocation_is_a_name_or_an_object(allocation: Any) -> None:
    check(
        "allocation must be a name (erk, ",
        f"such as st3.allocations.Sigma(), got {allocation!r}",
        kind=TypeError,
        allocation=allocation,
    )


def test_one_error_names_all_faults() -> None:
    check(
        "sparsity must be at least 0 and below 1, got 90",
        "min_weights must be a whole number of at least 0, got -1",
        "unknown method 'fether'",
        "unknown allocation 'unifrom'",
        "no weight of the model matches 'haed'",
        sparsity=90,
        min_weights=-1,
        method="fether",
        allocation="unifrom",
        exclude="haed",
    )


def test_one_error_names_faults_of_the_ramp_and_the_others() -> None:
    check(
        "sparsity must be at least 0 and below 1, got 90",
        "total_steps must be a whole number of at least 1, got 0",
        "unknown ramp 'cubical'",
        sparsity=90,
        total_steps=0,
        ramp="cubical",
    )


# ---------------------------------------------------------------- layers


def test_a_pattern_that_matches_nothing_is_refused_with_near_misses() -> None:
    check("no weight of the model matches 'haed' (near misses: head", kind=LookupError, include="haed")
    check(
        "no weight of the model matches 'cnov' (near misses: conv", kind=LookupError, exclude=["cnov", "head"]
    )
    check("no weight of the model matches Conv3d", kind=LookupError, include=nn.Conv3d)


def test_a_model_without_layers_is_refused_with_the_reason_for_each_weight() -> None:
    check(
        "no layer is left to sparsify: ",
        "conv.weight (excluded by '*')",
        "head.weight (excluded by '*')",
        kind=LookupError,
        exclude="*",
    )
    check(
        "no layer is left to sparsify: 0.weight (an embedding)",
        kind=LookupError,
        model=nn.Sequential(nn.Embedding(4, 4), nn.LayerNorm(4)),
    )


def test_a_number_as_pattern_is_refused() -> None:
    check("exclude takes names, globs", "got 3", kind=TypeError, exclude=[3])


def test_nan_weights_before_training_are_refused_and_the_layer_named() -> None:
    for bad in (float("nan"), float("inf")):
        model = TinyNet()
        model.deep.weight.data[0, 0, 0, 0] = bad
        optimizer = sgd(model.parameters())
        before = [
            len(hooks)
            for hooks in (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
        ]
        with pytest.raises(
            ValueError, match=r"layer 'deep\.weight' holds NaN or infinite weights before training"
        ):
            sparsify(model, optimizer)
        after = [
            len(hooks)
            for hooks in (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
        ]
        assert after == before
        assert "st3_step" not in optimizer.param_groups[0]


def steps_without_a_look_at_the_loss(model: TinyNet, optimizer: Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.step()
        optimizer.zero_grad()
        (model.conv.weight.sum() + model.deep.weight.nansum() + model.head.weight.sum()).backward()


@pytest.mark.parametrize(
    "method", ["st3", "feather", st3.methods.ST3(soft=False, straight_through=False)], ids=str
)
@pytest.mark.parametrize("allocation", ["global", "sigma", "uniform", "erk", "lamp"])
def test_nan_weights_during_training_raise_with_layer_and_step(method: Any, allocation: str) -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsify(model, optimizer, total_steps=40, method=method, allocation=allocation)
    train(model, optimizer, 10)
    pictures, classes = batch(10)
    F.cross_entropy(model(pictures), classes).backward()
    model.deep.weight.grad[0, 0, 0, 0] = float("nan")
    with pytest.raises(
        ValueError, match=r"layer 'deep\.weight' holds NaN or infinite weights at step (1[1-9]|20)"
    ) as error:
        steps_without_a_look_at_the_loss(model, optimizer, 10)
    assert "lower the learning rate or clip gradients" in str(error.value)


# ---------------------------------------------------------------- optimizers


def test_an_optimizer_that_lacks_layers_is_refused_with_their_names() -> None:
    model = TinyNet()
    optimizer = sgd(model.head.parameters())
    with refused(
        model,
        optimizer,
        "the optimizer does not own 'conv.weight', 'deep.weight'",
        "build it from model.parameters() after the model is complete and wrapped, or exclude these layers",
    ):
        sparsify(model, optimizer)
    sparsify(model, optimizer, exclude=["conv", "deep"])


def test_an_optimizer_of_another_model_is_refused() -> None:
    model, optimizer = TinyNet(), sgd(TinyNet().parameters())
    with refused(model, optimizer, "the optimizer does not own 'conv.weight', 'deep.weight', 'head.weight'"):
        sparsify(model, optimizer)
    with refused(model, optimizer, "the optimizer does not own 'conv.weight', 'deep.weight', 'head.weight'"):
        st3.keep_mask(model, optimizer)


def test_two_sparsifiers_on_one_weight_are_refused() -> None:
    model, optimizer, first = start()
    train(model, optimizer, 3)
    for second in (sparsify, st3.keep_mask):
        with refused(model, optimizer, "'conv.weight'", "already: detach() or finalize() it first"):
            second(model, optimizer)
    with refused(model, optimizer, "there is a sparsifier for 'head.weight' already"):
        sparsify(model, optimizer, include="head")
    train(model, optimizer, range(3, STEPS))
    first.finalize()


def test_two_sparsifiers_on_one_weight_are_refused_also_with_another_optimizer() -> None:
    model, optimizer, _ = start()
    other = adam(model.parameters())
    with refused(model, [optimizer, other], "there is a sparsifier for"):
        sparsify(model, other)


def test_sparsifiers_on_different_layers_of_one_optimizer_do_not_disturb_each_other() -> None:
    # Either the second is refused in one sentence, or each counts its own steps and ends on its own.
    model = TinyNet()
    optimizer = sgd(model.parameters())
    first = sparsify(model, optimizer, include="deep")
    try:
        second = sparsify(model, optimizer, include="head", sparsity=0.5)
    except ValueError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert "optimizer" in refusal
        return
    for number in range(STEPS):
        train(model, optimizer, range(number, number + 1))
        assert (first.step, second.step) == (number + 1, number + 1)
    first.finalize()
    assert second.step == STEPS
    assert int((model.deep.weight == 0).sum()) == int(1151 * 0.8) + 1
    assert int((model.head.weight == 0).sum()) == int(159 * 0.5) + 1


def test_lbfgs_is_refused() -> None:
    model = TinyNet()
    optimizer = torch.optim.LBFGS(model.parameters())
    with refused(model, optimizer, "LBFGS evaluates the model several times per step", "use SGD or Adam"):
        sparsify(model, optimizer)


def test_a_differentiable_optimizer_is_refused() -> None:
    model = TinyNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, differentiable=True)
    with refused(
        model,
        optimizer,
        "SGD(differentiable=True) cannot be combined with in-place sparse weights",
        "turn it off",
    ):
        sparsify(model, optimizer)


class Bare:
    """Quacks like an optimizer, but nothing can be hooked to it."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.param_groups = [{"params": list(parameters), "lr": 0.1}]
        self.state: dict[nn.Parameter, Any] = {}

    def step(self) -> None: ...


class NoInit(Optimizer):
    """Forgets to call the base class, so it has no hooks."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.param_groups = [{"params": list(parameters), "lr": 0.1}]
        self.state = {}


@pytest.mark.parametrize("make", [Bare, NoInit, lambda p: "adam", lambda p: None, lambda p: list(p)])
@pytest.mark.parametrize("call", [sparsify, st3.keep_mask])
def test_things_that_are_not_optimizers_with_hooks_are_refused(
    call: Callable[..., Any], make: Callable[..., Any]
) -> None:
    model = TinyNet()
    thing = make(model.parameters())
    with refused(
        model, [], "is not a torch optimizer with step hooks: pass a torch.optim.Optimizer", kind=TypeError
    ):
        call(model, thing)


def test_no_optimizer_at_all_is_refused() -> None:
    model = TinyNet()
    with refused(model, [], "no optimizer was given"):
        sparsify(model, [])


class Wrapper(Optimizer):
    """Like accelerate's: an Optimizer that holds another one and passes everything on to it."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_wrapped_optimizer_is_unwrapped(depth: int) -> None:
    model, plain = TinyNet(), TinyNet()
    inner, plain_optimizer = sgd(model.parameters()), sgd(plain.parameters())
    outer: Optimizer = inner
    for _ in range(depth):
        outer = Wrapper(outer)
    sparsifier = sparsify(model, outer)
    sparsify(plain, plain_optimizer)
    assert train(model, outer, STEPS) == train(plain, plain_optimizer, STEPS)
    assert "st3_raw" in inner.state[model.conv.weight]
    sparsifier.finalize()


def test_a_parameter_group_added_later_trains_dense_and_the_run_goes_on() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 3)
    extra = nn.Linear(10, 10)
    before = extra.weight.detach().clone()
    optimizer.add_param_group({"params": list(extra.parameters())})
    for number in range(3, STEPS):
        pictures, classes = batch(number)
        F.cross_entropy(extra(model(pictures)), classes).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert sparsifier.step == number + 1
    assert (extra.weight != 0).all()
    assert not torch.equal(extra.weight, before)
    assert zeros(sparsifier.finalize()) == zeros_asked(model)
    assert all("st3_step" not in group for group in optimizer.param_groups)


def test_layers_of_a_group_added_later_join_by_sparsifying_anew() -> None:
    model = nn.ModuleDict({"old": TinyNet()})
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model["old"], optimizer, 3)
    model["new"] = nn.Linear(10, 10)
    optimizer.add_param_group({"params": list(model["new"].parameters())})
    sparsifier.detach()
    sparsifier = sparsify(model, optimizer)
    for number in range(STEPS):
        pictures, classes = batch(number)
        F.cross_entropy(model["new"](model["old"](pictures)), classes).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert zeros(sparsifier.finalize()) == zeros_asked(model)
    assert (model["new"].weight == 0).any()


# ---------------------------------------------------------------- the model changes behind our back


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("steps", [0, 4])
@pytest.mark.parametrize(
    "method", [st3.methods.ST3(), st3.methods.ST3(straight_through=False)], ids=["straight", "not straight"]
)
def test_a_model_moved_to_another_precision_is_followed(
    dtype: torch.dtype, steps: int, method: st3.methods.ST3
) -> None:
    model, optimizer, sparsifier = start(method=method)
    train(model, optimizer, steps)
    model.to(dtype)
    train(model, optimizer, range(steps, STEPS))
    assert all(p.dtype == dtype for p in model.parameters())
    assert all(raw.dtype == dtype for raw in raw_weights(model, optimizer).values())
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_a_move_to_double_and_back_loses_nothing() -> None:
    model, optimizer, _ = start()
    plain, plain_optimizer, _ = start()
    train(model, optimizer, 4)
    model.double().float()
    train(model, optimizer, range(4, STEPS))
    train(plain, plain_optimizer, STEPS)
    assert_same(model.state_dict(), plain.state_dict())


def replace_weights(model: nn.Module) -> None:
    model.load_state_dict(TinyNet(seed=5).state_dict())


def scale_weights(model: TinyNet) -> None:
    with torch.no_grad():
        model.deep.weight.mul_(2.0)


@pytest.mark.parametrize("change", [replace_weights, scale_weights])
@pytest.mark.parametrize(
    "method", [st3.methods.ST3(), st3.methods.ST3(soft=False), st3.methods.Feather()], ids=str
)
def test_weights_changed_in_mid_training_raise_instead_of_being_undone(
    change: Callable[[Any], None], method: Any
) -> None:
    model, optimizer, sparsifier = start(method=method)
    train(model, optimizer, 4)
    change(model)
    pictures, classes = batch(4)
    F.cross_entropy(model(pictures), classes).backward()
    for _ in range(2):  # until something is done about it
        with refused(
            model,
            optimizer,
            "was changed from outside since the last step",
            "weights loaded into the model alone",
            "load the optimizer's state as well",
            "adopt()",
            kind=st3.errors.WeightsReplacedError,
        ):
            optimizer.step()
    new = model.deep.weight.detach().clone()
    sparsifier.adopt()
    assert torch.equal(raw_weights(model, optimizer)["deep.weight"], new)
    optimizer.step()
    optimizer.zero_grad()
    train(model, optimizer, range(5, STEPS))
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_filling_zeros_of_a_frozen_run_raises() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 7)
    sparsifier.freeze()
    replace_weights(model)
    with pytest.raises(
        st3.errors.WeightsReplacedError, match=r"layer 'conv\.weight' was changed from outside"
    ):
        train(model, optimizer, range(7, 8))


def test_changing_active_weights_of_a_frozen_run_is_fine() -> None:
    model, optimizer, sparsifier = start()
    train(model, optimizer, 7)
    sparsifier.freeze()
    with torch.no_grad():
        model.deep.weight.mul_(0.5)
    train(model, optimizer, range(7, STEPS))
    sparsifier.finalize()


def test_weights_loaded_while_the_model_is_still_dense_are_trained_from() -> None:
    model, other = TinyNet(), TinyNet(seed=5)
    optimizer, its_optimizer = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other))
    sparsifier = sparsify(model, optimizer, ramp=cubic(4, 8))
    train(model, optimizer, 3)
    replace_weights(model)
    train(model, optimizer, range(3, 4))
    train(other, its_optimizer, range(3, 4))
    assert_same(model.state_dict(), other.state_dict())
    train(model, optimizer, range(4, STEPS))
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_loading_what_the_model_holds_anyway_is_fine() -> None:
    model, optimizer, _ = start()
    plain, plain_optimizer, _ = start()
    for number in range(STEPS):
        model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()})
        train(model, optimizer, range(number, number + 1))
    train(plain, plain_optimizer, STEPS)
    assert_same(model.state_dict(), plain.state_dict())
