"""What every registered method must do, whoever wrote it: trained on a tiny network through `st3.sparsify`.

A method of another package is run through this suite by pytest's -p, with the module that registers it:

    pytest tests/methods/test_every_method.py -p your_package.your_module -k your_method
"""

import copy
import itertools
import math
import re
import sys
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import nn

import st3
from st3.core.budget.allocation import ALLOCATIONS
from st3.core.budget.ramp import RAMPS, resolve_ramp
from st3.core.choices import fitting_allocations
from st3.core.method import METHODS
from st3.core.state.store import entries

# At high sparsity a network this small loses filters; the warning is not the subject here.
pytestmark = pytest.mark.filterwarnings("ignore::st3.errors.LayerCollapseWarning")

ORDERS = list(itertools.permutations(["model", "optimizer", "sparsify"]))
LAYERS = ("conv1", "depthwise", "conv2", "fc")  # 144 + 72 + 576 + 32 weights
STEPS = 12
BLOCK = 1  # weights that are zeroed together; test_every_method_in_blocks.py makes its tests with 4
CUT = 5  # steps before a run is saved: in the middle of the ramp

# Every method as registered, and other settings of those that have some.
SETTINGS = [METHODS[name]() for name in METHODS] + [
    st3.methods.ST3(soft=False, straight_through=False),
    st3.methods.ST3(exact_rescale=True),
    st3.methods.Feather(power=2.0, theta=0.25),
    st3.methods.GraNet(initial=0.3),
    st3.methods.ACDC(warm_up=0.0, until=0.7, rounds=2, rest=1),
    st3.methods.SRSTE(n=1, m=8, decay=0.01),
    st3.methods.SSTE(n=3, m=4),
    st3.methods.STR(init=-3, weight_decay=0.05),
    st3.methods.ProbMask(lr=0.05, finetune=0.0),
    st3.methods.PDP(tau=1e-3),
]
AIMED = [method for method in SETTINGS if method.has_target]  # those that can be asked for a sparsity
every_method = pytest.mark.parametrize("method", list(METHODS))
every_setting = pytest.mark.parametrize("method", SETTINGS, ids=str)
every_aimed_method = pytest.mark.parametrize("method", [n for n in METHODS if METHODS[n]().has_target])
every_aimed_setting = pytest.mark.parametrize("method", AIMED, ids=str)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.conv2 = nn.Conv2d(8, 8, 3, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = self.depthwise(self.bn1(self.conv1(x)).relu())
        return self.fc(self.bn2(self.conv2(x)).relu().mean((2, 3)))


def data():
    """64 pictures of four kinds: in each, another corner of both channels is bright."""
    generator = torch.Generator().manual_seed(0)
    kinds = torch.arange(64) % 4
    pictures = 0.5 * torch.randn(64, 2, 7, 7, generator=generator)
    for picture, kind in zip(pictures, kinds.tolist(), strict=True):
        row, column = divmod(kind, 2)
        picture[:, 3 * row : 3 * row + 4, 3 * column : 3 * column + 4] += 1.0
    return pictures, kinds


PICTURES, KINDS = data()


def build(*, lr=0.05, seed=0):
    torch.manual_seed(seed)
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)


def made(method):
    return METHODS[method]() if isinstance(method, str) else method


def sparsify(model, optimizer, method, *, sparsity=0.9, total_steps=STEPS, **choice):
    """Call st3.sparsify; a method that implies its sparsity gets none, one without a target no way there either."""
    given = {"exclude": choice["exclude"]} if "exclude" in choice else {}
    if made(method).has_target:
        given = choice | ({} if made(method).own_sparsity else {"sparsity": sparsity})
        given |= {"block": BLOCK} if BLOCK > 1 else {}
    return st3.sparsify(model, optimizer, total_steps=total_steps, method=method, **given)


def train(model, optimizer, steps=STEPS):
    """Run an ordinary loop; return the losses."""
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(PICTURES), KINDS)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def run(method, *, steps=STEPS, **choice):
    """Train sparsely to the end; return model and sparsifier."""
    model, optimizer = build()
    sparsifier = sparsify(model, optimizer, method, total_steps=steps, **choice)
    train(model, optimizer, steps)
    return model, sparsifier


@dataclass(frozen=True)
class Finished:
    """A whole run, finalized, and what was seen on the way. Many tests look at it: they must not change it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    sparsifier: st3.Sparsifier
    losses: list[float]
    saved: dict[str, object]  # after CUT steps
    parameters: list[nn.Parameter]  # of the model before it was sparsified
    weights: dict[str, torch.Tensor]  # the model's state and outputs just before it was finalized
    outputs: torch.Tensor


@cache
def finished(method):
    model, optimizer = build()
    parameters = list(model.parameters())
    sparsifier = sparsify(model, optimizer, method)
    losses = train(model, optimizer, CUT)
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    losses += train(model, optimizer, STEPS - CUT)
    weights, outputs = copy.deepcopy(model.state_dict()), model.eval()(PICTURES)
    assert sparsifier.finalize() is model
    return Finished(model, optimizer, sparsifier, losses, saved, parameters, weights, outputs)


@pytest.fixture(scope="module", autouse=True)
def _forget_finished_runs():
    yield
    finished.cache_clear()


def asked(sparsifier, sparsity=None):
    """Return what a linear quantile zeroes: floor((n - 1) s) + 1 of the n weights that are covered; whole blocks."""
    sparsity = sparsifier.sparsity if sparsity is None else sparsity
    weights = sum(layer.numel for layer in sparsifier.layers)
    found = math.floor((weights - 1) * sparsity) + 1 if sparsity else 0
    return math.ceil(found / BLOCK) * BLOCK


def zeros(model):
    return {name: int((model.get_submodule(name).weight == 0).sum()) for name in LAYERS}


def zeroed(model, sparsifier):
    """Count the weights that may not be other than 0: a weight that has just grown is 0 for another reason."""
    (optimizer,) = sparsifier.optimizers
    kept = dict(entries(optimizer.param_groups, optimizer.state))  # in its state, or waiting for a first step
    masks = [kept[layer.parameter].get("st3_active") for layer in sparsifier.layers]
    if any(mask is None for mask in masks):
        return sum(zeros(model).values())
    assert sum(zeros(model).values()) >= sum(int((~mask).sum()) for mask in masks)
    return sum(int((~mask).sum()) for mask in masks)


def same(first, second):
    other = second.state_dict()
    return all(torch.equal(value, other.pop(key)) for key, value in first.state_dict().items()) and not other


# ---------------------------------------------------------------- the target


@every_aimed_method
@pytest.mark.parametrize("allocation", list(ALLOCATIONS))
def test_it_reaches_the_target_with_every_allocation_or_refuses_it(method, allocation):
    makes_sense = allocation in fitting_allocations(METHODS[method]())
    reaches_or_refuses(method, makes_sense, allocation=allocation)


@every_aimed_method
@pytest.mark.parametrize("ramp", list(RAMPS))
def test_it_reaches_the_target_with_every_ramp_or_refuses_it(method, ramp):
    chosen = METHODS[method]()
    only, restores, last = chosen.only_ramps, chosen.restores, chosen.search_end(STEPS)
    if last is not None and resolve_ramp(ramp, chosen.usual_times).share(last, STEPS) < 1.0:
        with pytest.raises(ValueError, match=f"fixes its masks after step {last} of {STEPS}"):
            sparsify(*build(), method, ramp=ramp)
        return
    reaches_or_refuses(method, (not only or ramp in only) and (restores or not RAMPS[ramp].falls), ramp=ramp)


def reaches_or_refuses(method, makes_sense, **choice):
    """A choice that makes sense, as the class declares it, reaches the target; any other is refused by name."""
    model, optimizer = build()
    if not makes_sense:
        ((key, value),) = choice.items()
        kind = type(METHODS[method]()).__name__
        with pytest.raises(ValueError, match=f"^{kind} .*{key}='{value}' means nothing to it"):
            sparsify(model, optimizer, method, **choice)
        return
    sparsifier = sparsify(model, optimizer, method, **choice)
    train(model, optimizer)
    assert zeroed(model, sparsifier) == asked(sparsifier)
    assert sparsifier.at_target
    sparsifier.finalize()  # counts itself, and raises if it is not satisfied


@every_aimed_setting
@pytest.mark.parametrize("sparsity", [0.1, 0.95])
def test_it_hits_any_target_exactly(method, sparsity):
    model, sparsifier = run(method, sparsity=sparsity, steps=6)
    assert sparsifier.sparsity == (made(method).own_sparsity or sparsity)
    assert zeroed(model, sparsifier) == asked(sparsifier)


@every_aimed_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_with_a_floor_it_reaches_the_target_and_every_layer_keeps_its_weights(method, dtype):
    """Half precision knows few magnitudes: many weights are tied wherever a layer is cut."""
    if not METHODS[method]().takes_floors or (METHODS[method]().learns and dtype == torch.bfloat16):
        pytest.skip("refused: it takes no floors, or learns in steps too small for half precision")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(98, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 4)).to(
        dtype
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sparsifier = sparsify(model, optimizer, method, min_weights=100)
    for _ in range(STEPS):
        nn.functional.cross_entropy(model(PICTURES.flatten(1).to(dtype)), KINDS).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = [layer.parameter for layer in sparsifier.layers]
    masks = [optimizer.state[weight].get("st3_active", weight != 0) for weight in weights]
    assert sum(int((~mask).sum()) for mask in masks) == asked(sparsifier)
    assert min(int(mask.sum()) for mask in masks) >= 100
    sparsifier.finalize()


@every_aimed_method
def test_finalize_names_the_layer_that_was_replaced_in_the_model(method):
    model, sparsifier = run(method)
    model.conv2 = nn.Conv2d(8, 8, 3, bias=False)
    with pytest.raises(RuntimeError, match=r"the model no longer holds 'conv2\.weight' as sparsified"):
        sparsifier.finalize()
    assert sparsifier.is_attached


@every_aimed_method
def test_it_has_as_many_zeros_as_the_ramp_asks_for_after_every_step(method):
    model, optimizer = build()
    is_free = not METHODS[method]().only_ramps
    choice = {"ramp": st3.ramps.Cubic(start=2 / 12, end=8 / 12)} if is_free else {}
    sparsifier = sparsify(model, optimizer, method, total_steps=12, **choice)
    found = [sum(zeros(model).values())]
    for _ in range(12):
        train(model, optimizer, 1)
        found.append(zeroed(model, sparsifier))
    assert found == [asked(sparsifier, sparsifier.asked(step)) for step in range(13)]
    assert not is_free or found[:4] == [0, 0, 0, found[3]]
    assert found[-1] == asked(sparsifier) > 0


@every_aimed_setting
def test_at_sparsity_zero_it_is_training_without_us_bit_for_bit(method):
    plain, optimizer = build()
    losses = train(plain, optimizer, 6)
    model, optimizer = build()
    if method.own_sparsity is not None:
        with pytest.raises(ValueError, match="leave sparsity out"):
            st3.sparsify(model, optimizer, sparsity=0.0, total_steps=6, method=method)
        return
    st3.sparsify(model, optimizer, sparsity=0.0, total_steps=6, method=method)
    assert train(model, optimizer, 6) == losses
    assert same(model, plain)


@every_setting
def test_it_stays_finite_when_a_single_weight_is_left(method):
    model, sparsifier = run(method, sparsity=0.999, steps=20)
    assert zeroed(model, sparsifier) == asked(sparsifier) or not made(method).has_target
    assert made(method).own_sparsity or not made(method).has_target or asked(sparsifier) == 823
    assert all(bool(torch.isfinite(value).all()) for value in model.state_dict().values())
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)
    sparsifier.detach()
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())  # the raw weights as well


@every_method
def test_the_loss_falls_although_four_of_five_weights_go(method):
    model, optimizer = build()
    is_random = METHODS[method]().only_ramps or METHODS[method]().learns == "probability"
    steps = 120 if is_random else 60  # a random mask is a worse start
    sparsify(model, optimizer, method, sparsity=0.8, total_steps=steps)
    losses = train(model, optimizer, steps)
    assert losses[0] > 1.2  # four kinds: log 4 = 1.39
    assert sum(losses[-5:]) / 5 < 0.1


# ---------------------------------------------------------------- what it leaves behind


@every_setting
def test_outputs_are_the_same_after_finalize(method):
    run = finished(method)
    assert torch.equal(run.model(PICTURES), run.outputs)
    assert all(torch.equal(run.weights[key], value) for key, value in run.model.state_dict().items())


@every_setting
def test_finalize_leaves_a_plain_model_and_an_optimizer_without_our_keys(method):
    run = finished(method)
    assert type(run.model) is Net
    assert list(run.model.state_dict()) == list(Net().state_dict())
    assert {key for state in run.optimizer.state.values() for key in state} == {"momentum_buffer"}
    assert all("st3_step" not in group for group in run.optimizer.param_groups)


@every_setting
def test_it_touches_only_the_layers_it_was_given(method):
    """With a learning rate of 0 nothing moves but what the sparsifier writes."""
    model, optimizer = build(lr=0.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    choice = {} if method.only_ramps else {"ramp": st3.ramps.Cubic(start=0.0, end=0.25)}
    sparsifier = sparsify(model, optimizer, method, total_steps=4, exclude=["fc", "depthwise"], **choice)
    train(model, optimizer, 4)
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    covered = {layer.name for layer in sparsifier.layers}
    assert changed == covered or (changed < covered and not method.has_target)
    assert "conv2.weight" in covered <= {"conv1.weight", "conv2.weight"}
    held = {name for name, p in model.named_parameters() if optimizer.state[p].keys() - {"momentum_buffer"}}
    assert held == covered


@every_setting
def test_zeros_are_exactly_zero_and_parameters_stay_the_same_objects(method):
    parameters = list(finished(method).model.parameters())
    assert all(a is b for a, b in zip(finished(method).parameters, parameters, strict=True))
    small = sum(int(((p != 0) & (p.abs() < 1e-12)).sum()) for p in parameters)
    assert small == 0


# ---------------------------------------------------------------- again and again


@every_setting
def test_two_runs_are_the_same_run(method):
    assert same(run(method)[0], finished(method).model)


@every_setting
def test_evaluation_changes_nothing_and_repeats(method):
    model, _ = run(method, steps=10)
    weights = copy.deepcopy(model.state_dict())
    model.eval()
    assert torch.equal(model(PICTURES), model(PICTURES))
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())


@every_setting
def test_a_copy_of_the_model_in_mid_training_is_plain_sparse_and_independent(method):
    model, optimizer = build()
    sparsify(model, optimizer, method)
    train(model, optimizer, 7)
    twin = copy.deepcopy(model)
    assert same(twin, model)
    snapshot = copy.deepcopy(model.state_dict())
    train(model, optimizer, 2)
    assert all(torch.equal(snapshot[key], value) for key, value in twin.state_dict().items())

    other = Net()
    other.load_state_dict(snapshot)
    for net in (twin, other):  # gradients of the copy are those of a network that never met us
        nn.functional.cross_entropy(net(PICTURES), KINDS).backward()
    for a, b in zip(twin.parameters(), other.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


# ---------------------------------------------------------------- saved and loaded


@every_setting
def test_it_resumes_bit_for_bit_whatever_is_loaded_first(method):
    whole = finished(method)
    for order in ORDERS:
        model, optimizer = build(seed=1)
        for action in order:
            if action == "model":
                model.load_state_dict(whole.saved["model"])
            elif action == "optimizer":
                optimizer.load_state_dict(copy.deepcopy(whole.saved["optimizer"]))
            else:
                sparsifier = sparsify(model, optimizer, method)
        assert sparsifier.step == CUT, order
        assert train(model, optimizer, STEPS - CUT) == whole.losses[CUT:], order
        assert same(model, whole.model), order


@every_aimed_setting
def test_a_sparse_model_without_raw_weights_is_refused_until_it_is_adopted(method):
    model, optimizer = build(seed=1)
    model.load_state_dict(finished(method).weights)
    sparsifier = sparsify(model, optimizer, method)
    nn.functional.cross_entropy(model(PICTURES), KINDS).backward()
    for call in (optimizer.step, sparsifier.finalize):
        with pytest.raises(
            ValueError, match=r"^\d\d% of the weights .* holds no raw weights.*from_sparse=True"
        ):
            call()
    assert sparsifier.step == 0
    sparsifier.adopt()
    optimizer.step()
    assert sparsifier.step == 1


# ---------------------------------------------------------------- weights that come from elsewhere


def replace_weights(model):
    """Load other weights, dense ones, into the model alone."""
    other, _ = build(seed=1)
    model.load_state_dict(other.state_dict())
    return other


@every_setting
def test_weights_replaced_from_outside_stop_every_step_until_they_are_adopted(method):
    model, optimizer = build()
    sparsifier = sparsify(model, optimizer, method)
    train(model, optimizer, STEPS - 2)  # the ramp is over, and AC/DC in its last sparse phase
    other = replace_weights(model)
    for _ in range(2):
        with pytest.raises(
            st3.errors.WeightsReplacedError, match=r"was changed from outside.*call adopt\(\)"
        ):
            train(model, optimizer, 1)
        optimizer.zero_grad()
    assert sparsifier.step == STEPS - 2
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    sparsifier.adopt()
    assert zeroed(model, sparsifier) == asked(sparsifier) or not method.has_target
    train(model, optimizer, 2)
    sparsifier.finalize()
    if method.has_target:
        assert sum(zeros(model).values()) >= asked(sparsifier)


@every_aimed_setting
def test_with_other_weights_the_model_is_not_at_its_target_and_finalize_says_why(method):
    model, sparsifier = run(method)
    assert sparsifier.at_target
    replace_weights(model)
    assert not sparsifier.at_target
    with pytest.raises(st3.errors.TargetMissedError) as error:
        sparsifier.finalize()
    assert re.search(r"these are not the weights of the last step: 'conv[12]\.weight'", str(error.value))
    assert "train longer" not in str(error.value)
    assert sparsifier.is_attached


@every_aimed_setting
def test_the_best_sparse_weights_may_be_loaded_before_finalize(method):
    model, optimizer = build()
    sparsifier = sparsify(model, optimizer, method)
    train(model, optimizer, STEPS - 1)
    assert sparsifier.at_target
    best = copy.deepcopy(model.state_dict())
    train(model, optimizer, 1)
    model.load_state_dict(best)
    assert sparsifier.at_target
    sparsifier.finalize()
    assert all(torch.equal(best[key], value) for key, value in model.state_dict().items())


# ---------------------------------------------------------------- the object


@every_setting
def test_it_prints_as_the_call_that_made_it(method):
    again = eval(repr(method), vars(sys.modules[type(method).__module__]).copy())
    assert again == method
    assert hash(again) == hash(method)


@every_setting
def test_its_settings_cannot_be_changed_in_mid_training(method):
    with pytest.raises(AttributeError):
        method.anything = 1
    for field in type(method).__dataclass_fields__:
        with pytest.raises(AttributeError):
            setattr(method, field, getattr(method, field))


@every_method
def test_the_name_and_the_object_are_the_same_method(method):
    assert same(run(method)[0], finished(METHODS[method]()).model)


@every_method
def test_channels_last_weights_are_zeroed_like_contiguous_ones(method):
    results = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        model, optimizer = build()
        model = model.to(memory_format=memory_format)
        choice = {} if METHODS[method]().only_ramps else {"ramp": "constant"}
        sparsify(model, optimizer, method, total_steps=1, **choice)
        results.append([p.detach() for p in model.parameters()])
    for contiguous, channels_last in zip(*results, strict=True):
        assert torch.equal(contiguous == 0, channels_last == 0)
        torch.testing.assert_close(contiguous, channels_last, rtol=1e-6, atol=0)  # sums in another order
