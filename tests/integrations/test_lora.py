"""LoRA on a sparse base: adapters train and the zeros stay; merging fills them, unless the mask is applied again."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import st3

peft = pytest.importorskip("peft")


def make_base():
    """A sparse model, as a checkpoint would bring it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sparsifier = st3.sparsify(
        model, optimizer, sparsity=0.5, total_steps=1, ramp="constant", allocation="uniform"
    )
    sparsifier.finalize()
    return model


def adapt(base, **choices):
    model = peft.get_peft_model(
        copy.deepcopy(base), peft.LoraConfig(r=4, target_modules=["0", "2"], **choices)
    )
    return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)


def train(model, optimizer, steps=20):
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        inputs = torch.randn(16, 16, generator=generator)
        F.cross_entropy(model(inputs), inputs[:, :4].argmax(1)).backward()
        optimizer.step()
        optimizer.zero_grad()


def masks(model):
    return {name: p != 0 for name, p in model.named_parameters() if p.dim() > 1}


def test_adapters_train_while_every_zero_of_the_base_stays():
    base = make_base()
    model, optimizer = adapt(base)
    train(model, optimizer)
    for number in (0, 2):
        layer = model.base_model.model[number]
        assert torch.equal(layer.base_layer.weight, base[number].weight)
        assert layer.lora_B["default"].weight.any()


def test_merging_fills_the_zeros_of_adapted_layers_and_the_old_mask_brings_them_back():
    base = make_base()
    model, optimizer = adapt(base)
    train(model, optimizer)
    merged = model.merge_and_unload()
    for number in (0, 2):
        assert st3.report(base[number]).sparsity == pytest.approx(0.5, abs=0.01)
        assert st3.report(merged[number]).sparsity < 0.2  # left where a filter got no gradient
    assert torch.equal(merged[4].weight, base[4].weight)  # had no adapter
    with torch.no_grad():
        for name, mask in masks(base).items():
            merged.get_parameter(name).mul_(mask)
    assert st3.report(merged).zeros == st3.report(base).zeros
    merged.requires_grad_()  # peft has frozen the base
    optimizer = torch.optim.AdamW(merged.parameters(), lr=0.01, weight_decay=0.1)
    keeper = st3.keep_mask(merged, optimizer)
    train(merged, optimizer, 5)
    keeper.finalize()
    assert all(torch.equal(mask, masks(base)[name]) for name, mask in masks(merged).items())


def test_layers_that_are_trained_beside_adapters_keep_their_zeros_with_keep_mask():
    base = make_base()
    model, optimizer = adapt(base, modules_to_save=["4"])
    keeper = st3.keep_mask(model, optimizer, exclude="*lora*")
    assert [layer.name for layer in keeper.layers] == ["base_model.model.4.modules_to_save.default.weight"]
    train(model, optimizer)
    keeper.finalize()
    head = model.base_model.model[4].modules_to_save["default"].weight
    assert torch.equal(head != 0, base[4].weight != 0)
    assert not torch.equal(head, base[4].weight)


def test_keep_mask_warns_of_adapters_that_it_would_hold_at_zero():
    model, optimizer = adapt(make_base())
    with pytest.warns(st3.errors.LayerCollapseWarning) as warned:
        st3.keep_mask(model, optimizer)
    assert str(warned[0].message) == (
        "'base_model.model.0.lora_B.default.weight', 'base_model.model.2.lora_B.default.weight' are all zeros, which "
        "keep_mask will keep, so these layers never train: exclude layers that only begin at zero, such as LoRA's "
        "('*lora_B*')"
    )


def test_where_adapters_alone_are_trained_there_is_nothing_to_keep():
    model, optimizer = adapt(make_base())
    with pytest.raises(LookupError, match="no layer is left to sparsify"):
        st3.keep_mask(model, optimizer, exclude="*lora*")
