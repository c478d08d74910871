"""Optimizers may use any key of their state; wrappers are unwrapped; those that fill the zeros are refused.

The classes here are stand-ins with the names and attributes of packages that need not be installed.
"""

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer

import st3


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))


def make_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def sparsify(model, optimizer):
    return st3.sparsify(model, optimizer, sparsity=0.8, total_steps=10)


def refusal(model, optimizer):
    with pytest.raises(ValueError) as error:
        sparsify(model, optimizer)
    with pytest.raises(ValueError) as same:
        st3.keep_mask(model, optimizer)
    assert str(same.value) == str(error.value)
    return str(error.value)


def batch(number):
    inputs = torch.randn(8, 12, generator=torch.Generator().manual_seed(number))
    return inputs, inputs[:, :3].argmax(1)


class Forwarding(Optimizer):
    """Passes everything on to the optimizer that it holds under `attribute`."""

    attribute = "optimizer"

    def __init__(self, optimizer):
        setattr(self, self.attribute, optimizer)

    @property
    def inner(self):
        return getattr(self, self.attribute)

    @property
    def param_groups(self):
        return self.inner.param_groups

    def step(self, closure=None):
        return self.inner.step(closure)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)


class DPOptimizer(Forwarding):  # Opacus
    attribute = "original_optimizer"


class _FabricOptimizer(Forwarding):  # Lightning Fabric
    pass


class AcceleratedOptimizer(Forwarding):  # Accelerate, which hands modes on to those that have some
    def train(self):
        pass

    def eval(self):
        pass


class Lookahead(Forwarding):
    pass


class TimmLookahead(Forwarding):
    attribute = "_base_optimizer"


class AdamWScheduleFree(torch.optim.AdamW):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, lr=lr)
        for group in self.param_groups:
            group["train_mode"] = False

    def train(self):
        pass

    def eval(self):
        pass


class Renamed(AdamWScheduleFree):
    """A schedule-free optimizer by its behaviour, not its name."""


class ScheduleFreeWrapper(Forwarding):
    attribute = "base"


class SAM(Optimizer):
    """Sharpness-aware minimisation as its users know it: two backward passes, two half steps."""

    def __init__(self, params, base_optimizer, rho=0.05, **settings):
        super().__init__(params, {"rho": rho, **settings})
        self.base_optimizer = base_optimizer(self.param_groups, **settings)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        weights = [p for group in self.param_groups for p in group["params"]]
        norm = torch.stack([p.grad.norm() for p in weights]).norm()
        for p in weights:
            self.state[p]["before"] = p.data.clone()
            p.add_(p.grad, alpha=0.05 / float(norm))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for p, state in self.state.items():
            p.data = state["before"]
        self.base_optimizer.step()
        self.zero_grad()


# ---------------------------------------------------------------- unwrapped


@pytest.mark.parametrize("wrapper", [DPOptimizer, _FabricOptimizer, AcceleratedOptimizer])
def test_a_wrapper_that_only_passes_steps_on_is_unwrapped(wrapper):
    model = make_model()
    plain = copy.deepcopy(model)
    inner, alone = make_sgd(model), make_sgd(plain)
    outer = wrapper(inner)
    sparsifier = sparsify(model, outer)
    assert sparsifier.optimizers == [inner]
    sparsify(plain, alone)
    for number in range(10):
        inputs, classes = batch(number)
        for network, optimizer in ((model, outer), (plain, alone)):
            F.cross_entropy(network(inputs), classes).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert sparsifier.step == 10
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), plain.parameters(), strict=True))


class Named(Optimizer):
    """Momentum on weights that a mask chooses, under keys that are given: SaRA has a "mask", Nero a "scale"."""

    def __init__(self, params, momentum, mask, scale):
        super().__init__(params, {"lr": 0.05})
        self.keys = (momentum, mask, scale)

    @torch.no_grad()
    def step(self, closure=None):
        momentum, mask, scale = self.keys
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state |= {
                    momentum: torch.zeros_like(p),
                    mask: p.abs() < p.abs().mean(),
                    scale: torch.ones(()),
                }
            state[momentum].mul_(0.9).add_(p.grad)
            state[scale].mul_(0.99)
            p.add_(state[momentum] * state[mask] * state[scale], alpha=-0.05)


@pytest.mark.parametrize("method", ["st3", "gmp", "s_ste"])
@pytest.mark.parametrize("keys", [("raw", "mask", "scale"), ("active", "raw", "mask")])
def test_an_optimizer_may_use_any_key_without_the_prefix(method, keys):
    finals = []
    for own in (("first", "second", "third"), keys):
        model = make_model()
        optimizer = Named(model.parameters(), *own)
        sparsity = {"s_ste": None}.get(method, 0.8)
        sparsifier = st3.sparsify(model, optimizer, sparsity=sparsity, total_steps=10, method=method)
        for number in range(10):
            inputs, classes = batch(number)
            F.cross_entropy(model(inputs), classes).backward()
            optimizer.step()
            optimizer.zero_grad()
            if number == 4:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if number == 7:
                sparsifier.freeze()
        sparsifier.finalize()
        assert all(set(state) == set(own) for state in optimizer.state.values())
        finals.append(
            [*model.parameters(), *(state[key] for state in optimizer.state.values() for key in own)]
        )
    assert all(torch.equal(p, q) for p, q in zip(*finals, strict=True))


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize("optimizer", [AdamWScheduleFree, Renamed])
@pytest.mark.parametrize("wrap", [lambda x: x, AcceleratedOptimizer, _FabricOptimizer])
def test_schedule_free_optimizers_are_refused_wrapped_or_not(optimizer, wrap):
    model = make_model()
    assert refusal(model, wrap(optimizer(model.parameters()))) == (
        f"{optimizer.__name__} averages weights and puts the average into the model at eval(), which fills the zeros: "
        "train with an ordinary optimizer (AdamW, SGD) and a learning-rate schedule instead"
    )


def test_the_optimizer_inside_a_schedule_free_one_is_named():
    model = make_model()
    assert refusal(model, ScheduleFreeWrapper(make_sgd(model))).endswith(
        "train with the optimizer inside (SGD, its .base) and a learning-rate schedule instead"
    )


@pytest.mark.parametrize(("kind", "key"), [(Lookahead, "optimizer"), (TimmLookahead, "_base_optimizer")])
def test_lookahead_is_refused_and_the_optimizer_inside_named(kind, key):
    model = make_model()
    assert refusal(model, kind(make_sgd(model))) == (
        f"{kind.__name__} puts slow weights of its own into the model every few steps, which fills the zeros: train "
        f"with the optimizer inside (SGD, its .{key}) alone"
    )


def test_sam_is_refused_and_its_base_optimizer_named():
    model = make_model()
    assert refusal(model, SAM(model.parameters(), torch.optim.SGD, lr=0.05)) == (
        "SAM steps through another optimizer, so its own steps cannot be followed: pass the optimizer inside (SGD, its "
        ".base_optimizer) to sparsify and go on training with SAM"
    )


class StochasticWeightAveraging:
    """Lightning's callback, by its name."""


class WeightAveraging:
    """The newer one."""


class EMAWeightAveraging(WeightAveraging):
    pass


class LightningModule(nn.Module):
    """Belongs to a trainer, which holds the callbacks, once `fit` has been called."""

    def __init__(self, callbacks=None):
        super().__init__()
        self.net = make_model()
        self._trainer = None if callbacks is None else SimpleNamespace(callbacks=callbacks)


@pytest.mark.parametrize("callback", [StochasticWeightAveraging, WeightAveraging, EMAWeightAveraging])
def test_a_trainer_that_averages_weights_is_refused_and_the_remedy_named(callback):
    model = LightningModule([object(), callback()])
    assert refusal(model, make_sgd(model)) == (
        f"the trainer's callback {callback.__name__} puts averaged weights into the model when training ends, which "
        "fills the zeros: use Lightning's WeightAveraging beside st3.integrations.lightning.SparseTraining, which "
        "makes the average sparse"
    )


@pytest.mark.parametrize("callbacks", [None, [], [object()]])
def test_any_other_trainer_is_welcome(callbacks):
    model = LightningModule(callbacks)
    assert len(sparsify(model, make_sgd(model)).layers) == 2


@pytest.mark.parametrize("method", ["st3", "gmp", "rigl"])
def test_sam_trains_sparse_when_its_base_optimizer_is_given(method):
    model = make_model()
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
    sparsifier = st3.sparsify(model, optimizer.base_optimizer, sparsity=0.8, total_steps=10, method=method)
    for number in range(10):
        inputs, classes = batch(number)
        F.cross_entropy(model(inputs), classes).backward()
        optimizer.first_step()
        F.cross_entropy(model(inputs), classes).backward()
        optimizer.second_step()
    assert sparsifier.step == 10
    assert st3.report(sparsifier.finalize()).sparsity >= 0.799
