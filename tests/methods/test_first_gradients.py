"""What every method must do before a layer's first gradient: an unused head, an expert used late, before step 1."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn

import st3
from st3.core.method import METHODS
from st3.core.state.store import entries

pytestmark = pytest.mark.filterwarnings("ignore::st3.errors.LayerCollapseWarning")

ORDERS = list(itertools.permutations(["model", "optimizer", "sparsify"]))
STEPS = 10
LATE = 7  # the step in which the late layer is used for the first time; the target is reached before
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "SGD without momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.001),
}

# Every method as registered, and settings by which it acts in every step, or from the first on.
SETTINGS = [METHODS[name]() for name in METHODS] + [
    st3.methods.RigL(every=1),
    st3.methods.SET(every=1),
    st3.methods.GraNet(every=1, initial=0.3),
    st3.methods.ACDC(warm_up=0.0, until=0.7, rounds=2, rest=1),
    st3.methods.STR(init=-3, weight_decay=0.05),
]
every_setting = pytest.mark.parametrize("method", SETTINGS, ids=str)
every_aimed_setting = pytest.mark.parametrize("method", [m for m in SETTINGS if m.has_target], ids=str)


class Net(nn.Module):
    """Four layers; `spare` is never used, `late` by the passes that are told so."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Linear(16, 16)
        self.spare = nn.Linear(16, 8)
        self.late = nn.Linear(16, 16)
        self.head = nn.Linear(16, 8)

    def forward(self, x, uses_late):
        x = self.body(x).relu()
        return self.head(x + self.late(x).relu() if uses_late else x)


def build(kind="SGD", *, seed=0):
    model = Net(seed)
    return model, OPTIMIZERS[kind](model.parameters())


def sparsify(model, optimizer, method, **choice):
    is_asked = method.has_target and not method.own_sparsity
    given = {"sparsity": 0.8} if is_asked else {}
    return st3.sparsify(model, optimizer, total_steps=STEPS, method=method, **given, **choice)


def backward(model, number):
    generator = torch.Generator().manual_seed(number)
    pictures, kinds = torch.randn(8, 16, generator=generator), torch.arange(8)
    nn.functional.cross_entropy(model(pictures, number >= LATE), kinds).backward()


def train(model, optimizer, first=0, last=STEPS):
    for number in range(first, last):
        backward(model, number)
        optimizer.step()
        optimizer.zero_grad()


def same(first, second):
    return all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))


def zeros(model):
    return sum(int((layer.weight == 0).sum()) for layer in model.children())


def zeroed(model, optimizer):
    """Count the weights that may not be other than 0: one that has grown in an unused layer is 0 for another reason."""
    masks = [
        kept["st3_active"]
        for _, kept in entries(optimizer.param_groups, optimizer.state)
        if "st3_active" in kept
    ]
    return sum(int((~mask).sum()) for mask in masks) if masks else zeros(model)


RESUMED = [("SGD", 5), ("SGD without momentum", 5), ("Adam", 5), ("SGD", 0), ("Adam", 0)]


@every_setting
@pytest.mark.parametrize(("kind", "cut"), RESUMED)
def test_a_run_resumes_bit_for_bit_while_layers_have_had_no_gradient(method, kind, cut):
    model, optimizer = build(kind)
    sparsify(model, optimizer, method)
    train(model, optimizer, 0, cut)
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer, cut)
    # Two of the six each time, all of them for every method, and each with every kind for some methods
    turn = SETTINGS.index(method) + RESUMED.index((kind, cut))
    for order in ORDERS[turn % 3 :: 3]:
        other, its_optimizer = build(kind, seed=1)
        for action in order:
            if action == "model":
                other.load_state_dict(saved["model"])
            elif action == "optimizer":
                its_optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
            else:
                sparsifier = sparsify(other, its_optimizer, method)
        assert sparsifier.step == cut, order
        assert not cut or zeros(other) == sum(
            int((saved["model"][f"{name}.weight"] == 0).sum()) for name, _ in other.named_children()
        )
        train(other, its_optimizer, cut)
        assert same(other, model), order


@every_setting
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("cut", [0, 5])
def test_a_copy_of_model_and_optimizer_goes_on_like_the_original(method, kind, cut):
    model, optimizer = build(kind)
    sparsify(model, optimizer, method)
    train(model, optimizer, 0, cut)
    twin, its_optimizer = copy.deepcopy((model, optimizer))
    sparsify(twin, its_optimizer, method)
    train(model, optimizer, cut)
    train(twin, its_optimizer, cut)
    assert same(twin, model)


@every_aimed_setting
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_the_target_is_met_exactly_although_a_layer_never_gets_a_gradient(method, kind):
    model, optimizer = build(kind)
    sparsifier = sparsify(model, optimizer, method)
    train(model, optimizer)
    assert sparsifier.at_target
    weights = sum(layer.numel for layer in sparsifier.layers)
    assert zeroed(model, optimizer) == math.floor((weights - 1) * sparsifier.sparsity) + 1
    with pytest.warns(st3.errors.CoverageWarning, match=r"no gradient ever reached 'spare\.weight'"):
        sparsifier.finalize()
    assert (model.spare.weight == 0).any()


@every_setting
def test_an_unused_layer_keeps_the_weights_that_it_began_with(method):
    model, optimizer = build()
    before = model.spare.weight.detach().clone()
    sparsifier = sparsify(model, optimizer, method)
    train(model, optimizer)
    active = model.spare.weight != 0
    sparsifier.detach()
    assert torch.equal(model.spare.weight[active], before[active])


@every_setting
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_exception_in_the_first_step_changes_nothing(method, kind):
    if method.learns == "threshold" and kind == "RMSprop":
        pytest.skip("STR does not know the rule of RMSprop")
    results = []
    for is_interrupted in (False, True):
        model, optimizer = build(kind)
        sparsifier = sparsify(model, optimizer, method)
        if is_interrupted:
            backward(model, 0)
            group = optimizer.param_groups[0]
            rate = group.pop("lr")
            with pytest.raises(KeyError):
                optimizer.step()
            group["lr"] = rate
            optimizer.zero_grad()
            sparsifier.report()  # puts the sparse weights back
        train(model, optimizer)
        results.append(model)
    assert same(*results)


@every_setting
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_optimizer_never_finds_a_state_of_ours_without_its_own(method, kind):
    """Adam and others take a state that is not empty for their own, in a step, a copy and a load."""
    if method.learns == "threshold" and kind == "RMSprop":
        pytest.skip("STR does not know the rule of RMSprop")
    model, optimizer = build(kind)
    sparsify(model, optimizer, method)
    for number in range(STEPS):
        train(model, optimizer, number, number + 1)
        saved = optimizer.state_dict()
        _, its_optimizer = build(kind)
        its_optimizer.load_state_dict(saved)
        assert model.spare.weight not in optimizer.state
        assert (model.late.weight in optimizer.state) == (number >= LATE)
