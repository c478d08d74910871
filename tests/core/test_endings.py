"""Runs that end in unusual ways: loaded weights, other layers, other optimizers, NaN."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.tiny import STEPS, TinyNet, batch, sgd, sparsify, train, zeros, zeros_asked
from torch import nn
from torch.optim import Optimizer

import st3


def trained(**changes: Any) -> tuple[TinyNet, Optimizer, st3.Sparsifier]:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer, **changes)
    train(model, optimizer, STEPS)
    return model, optimizer, sparsifier


@pytest.mark.parametrize("several", [False, True])
def test_the_best_weights_loaded_before_finalize_stay(several: bool) -> None:
    model = TinyNet()
    body = [p for name, p in model.named_parameters() if not name.startswith("head")]
    optimizers = [sgd(body), sgd(model.head.parameters())] if several else [sgd(model.parameters())]
    sparsifier = sparsify(model, optimizers)
    best: dict[str, Any] = {}
    for number in range(STEPS):
        pictures, classes = batch(number)
        F.cross_entropy(model(pictures), classes).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if number == STEPS - 3:
            assert sparsifier.at_target
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    sparsifier.finalize()
    assert all(torch.equal(value, best[key]) for key, value in model.state_dict().items())


def test_dense_weights_loaded_before_finalize_are_called_so() -> None:
    model, _, sparsifier = trained()
    assert sparsifier.at_target
    model.load_state_dict(TinyNet(seed=5).state_dict())
    assert not sparsifier.at_target
    with pytest.raises(st3.errors.TargetMissedError) as error:
        sparsifier.finalize()
    assert str(error.value) == (
        "target sparsity 0.8 was missed: 0 of 1,456 weights are zero, a sparsity of 0.000000; 1,165 were asked for; "
        "these are not the weights of the last step: 'conv.weight', 'deep.weight', 'head.weight' changed since then; "
        "load weights that were saved at the target, or call adopt() and train on"
    )
    sparsifier.adopt()
    assert sparsifier.at_target
    assert zeros(sparsifier.finalize()) == zeros_asked(model)


def test_a_run_that_is_not_at_its_target_yet_is_not_blamed_on_loaded_weights() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, 3)
    held = copy.deepcopy(model.state_dict())
    model.load_state_dict(held)  # written, but with what it held
    with pytest.raises(
        st3.errors.TargetMissedError, match="training stopped at step 3, before the ramp's end"
    ):
        sparsifier.finalize()


@pytest.mark.parametrize("loaded_first", [False, True])
def test_a_checkpoint_with_raw_weights_of_layers_now_left_out_is_refused(loaded_first: bool) -> None:
    model, optimizer, _ = trained()
    state = copy.deepcopy(optimizer.state_dict())
    other = TinyNet()
    its_optimizer = sgd(other.parameters())
    other.load_state_dict(model.state_dict())
    if loaded_first:
        its_optimizer.load_state_dict(state)
        with pytest.raises(st3.errors.CheckpointError, match="use the same include and exclude"):
            sparsify(other, its_optimizer, exclude="head")
    else:
        sparsify(other, its_optimizer, exclude="head", from_sparse=True)
        with pytest.raises(st3.errors.CheckpointError, match="use the same include and exclude"):
            its_optimizer.load_state_dict(state)


class Perturbing(torch.optim.SGD):
    """Moves the weights, then asks for gradients there: sharpness-aware minimisation and its like."""

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(0.01)
        closure()
        return super().step()


def test_an_optimizer_that_moves_the_weights_before_its_closure_is_refused() -> None:
    model = TinyNet()
    optimizer = Perturbing(model.parameters(), lr=0.1)
    sparsify(model, optimizer)

    def closure() -> torch.Tensor:
        pictures, classes = batch(0)
        loss = F.cross_entropy(model(pictures), classes)
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match="moves the weights before it evaluates its closure"):
        optimizer.step(closure)


def test_from_sparse_starts_anew_where_masks_were_fixed() -> None:
    model, _, sparsifier = trained()
    sparsifier.finalize()
    fine_tuner = sgd(model.parameters())
    st3.keep_mask(model, fine_tuner)
    train(model, fine_tuner, 3)
    twin, its_optimizer = copy.deepcopy((model, fine_tuner))
    again = sparsify(twin, its_optimizer, sparsity=0.9, from_sparse=True)
    assert not again.is_frozen
    assert again.step == 0
    train(twin, its_optimizer, STEPS)
    assert zeros(again.finalize()) == zeros_asked(twin, 0.9)


def test_a_model_with_nan_is_not_finalized() -> None:
    model, _, sparsifier = trained(method=st3.methods.ST3(rescale=False))
    active = (model.deep.weight != 0).nonzero()[0].tolist()
    with torch.no_grad():
        model.deep.weight[tuple(active)] = torch.nan
    with pytest.raises(
        ValueError, match=r"layer 'deep\.weight' holds NaN or infinite weights at the end of training"
    ):
        sparsifier.finalize()
    assert sparsifier.is_attached


def test_a_copy_gets_the_masks_of_a_frozen_run() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, 3)
    sparsifier.freeze()
    train(model, optimizer, range(3, STEPS))
    other = TinyNet(seed=5)
    sparsifier.apply_to(other)
    for name in ("conv.weight", "deep.weight", "head.weight"):
        assert torch.equal(other.get_parameter(name) == 0, model.get_parameter(name) == 0)


def test_a_floor_that_a_layers_own_sparsity_leaves_no_room_for_is_refused() -> None:
    model = TinyNet()
    with pytest.raises(
        ValueError, match="at least 20 weights per layer are to stay, 20 in all, but only 2 of 160 may"
    ):
        sparsify(model, sgd(model.parameters()), layer_sparsity={"head": 0.99}, min_weights=20)


def test_a_layer_without_gradients_does_not_keep_a_run_from_its_target() -> None:
    model = nn.ModuleDict({"used": nn.Linear(20, 20), "unused": nn.Linear(20, 20)})
    optimizer = sgd(model.parameters())
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.5, total_steps=4)
    for _ in range(4):
        model["used"](torch.randn(4, 20)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sparsifier.at_target
    with pytest.warns(st3.errors.CoverageWarning, match=r"no gradient ever reached 'unused\.weight'"):
        sparsifier.finalize()
    assert sum(int((layer.weight == 0).sum()) for layer in model.values()) == 400


def test_a_detached_run_is_not_at_its_target() -> None:
    _, _, sparsifier = trained()
    assert sparsifier.at_target
    sparsifier.detach()
    assert not sparsifier.at_target


def test_a_report_covers_layers_that_are_not_trained() -> None:
    model, _, sparsifier = trained()
    sparsifier.finalize()
    model.requires_grad_(False)
    assert st3.report(model).zeros == zeros_asked(model)
    assert st3.report(nn.BatchNorm2d(3)).rows == ()


def test_a_report_keeps_targets_apart() -> None:
    _, _, sparsifier = trained(layer_sparsity={"head": 0.5})
    text = str(sparsifier.report())
    assert "80.02 % without the layers that have their own target, target 80.00 %" in text
    assert sparsifier.report().rows[-1].target == 0.5


def test_wrong_kinds_of_arguments_are_named() -> None:
    model = TinyNet()
    optimizer = sgd(model.parameters())
    with pytest.raises(TypeError, match=r"the first argument must be the model, an nn\.Module, got SGD"):
        st3.sparsify(optimizer, model, sparsity=0.5, total_steps=10)
    with pytest.raises(TypeError, match=r"layer_sparsity takes a dict of names and sparsities, got 0\.5"):
        sparsify(model, optimizer, layer_sparsity=0.5)
    with pytest.raises(TypeError, match="StepLR is not a torch optimizer"):
        sparsify(model, torch.optim.lr_scheduler.StepLR(optimizer, 1))
    with pytest.raises(ValueError, match="include is empty"):
        sparsify(model, optimizer, include=[])
    with pytest.raises(LookupError, match="did you mean 'st3'"):
        sparsify(model, optimizer, method="ST-3")
