"""PDP: against autograd through its sigmoid, what the model holds when, and the shares that its ramp begins with."""

import copy
import math

import numpy as np
import pytest
import torch
from tests.processes import on_ranks
from torch import distributed as dist
from torch import nn
from torch.func import functional_call

import st3

pytestmark = pytest.mark.filterwarnings(
    "ignore::st3.errors.LayerCollapseWarning"
)  # small layers lose filters

STEPS, SPARSITY = 40, 0.8
WIDE = st3.methods.PDP(tau=1e-2)  # many weights of a small network lie in the slope of the mask


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3)
    ).double()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.05)


def start(method=WIDE, optimizer=sgd, **choice):
    model = network()
    its = optimizer(model)
    settings = {"sparsity": SPARSITY, "total_steps": STEPS, "method": method, **choice}
    return model, its, st3.sparsify(model, its, **settings)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(32, 20, generator=generator).double()
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def backward(model, step, part=slice(None), factor=1.0):
    x, y = batch(step)
    (nn.functional.cross_entropy(model(x[part]), y[part]) * factor).backward()


def learn(model, optimizer, steps):
    for step in steps:
        backward(model, step)
        optimizer.step()
        optimizer.zero_grad()


def halfway(weight, zeros):
    ordered = np.sort(weight.detach().abs().numpy().ravel())
    return (ordered[zeros - 1] + ordered[zeros]) / 2


@pytest.mark.parametrize("method", [st3.methods.PDP(), WIDE], ids=str)
@pytest.mark.parametrize("optimizer", [sgd, adamw])
def test_a_run_agrees_with_autograd_through_the_sigmoid(method, optimizer):
    """The ramp rises from step 6 (0.16 of 40) to step 33; the shares are those of one quantile at step 7."""
    model, its, sparsifier = start(method, optimizer)
    names = [layer.name for layer in sparsifier.layers]
    reference = network()
    weights = dict(reference.named_parameters())
    reference_optimizer = optimizer(reference)
    total, shares, thresholds = sum(weights[n].numel() for n in names), None, None
    for step in range(STEPS):
        learn(model, its, [step])

        sparse = {}
        for name in names if thresholds else ():
            raw = weights[name]
            sparse[name] = raw * torch.sigmoid((raw**2 - thresholds[name] ** 2) / method.tau)
        x, y = batch(step)
        out = functional_call(reference, weights | sparse, (x,))
        nn.functional.cross_entropy(out, y).backward()
        reference_optimizer.step()
        reference_optimizer.zero_grad()
        share = min(1.0, max(0.0, (step + 1 - 6) / (33 - 6)))
        if not share:
            continue
        if shares is None:
            together = np.concatenate([weights[n].detach().abs().numpy().ravel() for n in names])
            limit = np.quantile(together, SPARSITY)
            shares = {n: int((weights[n].abs() <= limit).sum()) for n in names}
        zeros = {x.name: int((x.parameter == 0).sum()) for x in sparsifier.layers}
        assert sum(zeros.values()) == math.floor((total - 1) * SPARSITY * share) + 1
        assert all(abs(zeros[n] - share * shares[n]) <= 1 for n in names)
        thresholds = {n: halfway(weights[n], zeros[n]) for n in names}
    assert {x.name: int((x.parameter == 0).sum()) for x in sparsifier.layers} == shares
    for layer in sparsifier.layers:
        raw = weights[layer.name]
        # 2 W^2 / tau multiplies rounding errors along with the gradient.
        assert torch.allclose(its.state[layer.parameter]["st3_raw"], raw, rtol=0, atol=1e-7)
        hard = raw * (raw.abs() > thresholds[layer.name])
        assert torch.allclose(layer.parameter, hard, rtol=0, atol=1e-7)


def test_masks_are_soft_from_a_pass_in_training_to_the_step_and_hard_otherwise():
    model, optimizer, sparsifier = start(ramp="constant")
    asked = math.floor((2090 - 1) * SPARSITY) + 1
    x, y = batch(0)

    def zeros():
        return sum(int((layer.parameter == 0).sum()) for layer in sparsifier.layers)

    assert zeros() == asked
    hard = copy.deepcopy(model.state_dict())
    loss = nn.functional.cross_entropy(model(x), y)
    assert zeros() == 0
    loss.backward()
    model.eval()
    model(x)
    assert zeros() == asked  # put back, bit for bit
    assert all(torch.equal(value, hard[key]) for key, value in model.state_dict().items())
    model.train()
    with torch.no_grad():
        model(x)
    assert zeros() == asked
    optimizer.step()
    assert zeros() == asked


def test_micro_batches_add_up_to_the_batch():
    results = []
    for parts in ([slice(None)], [slice(0, 8), slice(8, 32)]):
        model, optimizer, _ = start()
        for step in range(12):
            for part in parts:
                size = len(range(*part.indices(32)))
                backward(model, step, part, size / 32)
            optimizer.step()
            optimizer.zero_grad()
        results.append(model)
    for a, b in zip(*(model.parameters() for model in results), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-9)


def test_two_forward_passes_before_one_backward_pass_see_the_same_masks():
    model, _, _ = start(ramp="constant")
    x, y = batch(0)
    first, second = model(x[:16]), model(x[16:])
    nn.functional.cross_entropy(torch.cat([first, second]), y).backward()
    split = model[0].weight.grad.clone()
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    assert torch.allclose(split, model[0].weight.grad, rtol=0, atol=1e-12)


def test_a_gradient_from_evaluation_mode_goes_through_the_hard_mask():
    model, _, _ = start(ramp="constant")
    model.eval()
    x, y = batch(0)
    nn.functional.cross_entropy(model(x), y).backward()
    weight, grad = model[0].weight.detach(), model[0].weight.grad
    assert not grad[weight == 0].any()
    assert grad[weight != 0].any()


def test_the_shares_are_plain_numbers_in_the_state_and_outlive_the_weights_that_set_them():
    model, optimizer, sparsifier = start()
    learn(model, optimizer, range(6))
    assert all("st3_zeros" not in optimizer.state[x.parameter] for x in sparsifier.layers)
    learn(model, optimizer, [6])
    first = {x.name: optimizer.state[x.parameter]["st3_zeros"] for x in sparsifier.layers}
    assert all(type(number) is int for number in first.values())
    with torch.no_grad():
        model[0].weight.mul_(5.0)  # one threshold over all layers would now spare this one
    sparsifier.adopt()
    learn(model, optimizer, range(7, STEPS))
    assert {x.name: int((x.parameter == 0).sum()) for x in sparsifier.layers} == first


@pytest.mark.parametrize("cut", [3, 20, 38])
def test_it_resumes_bit_for_bit_in_half_precision_too(cut):
    def begin():
        model = network().bfloat16()
        optimizer = adamw(model)
        return model, optimizer

    def train(model, optimizer, steps):
        for step in steps:
            x, y = batch(step)
            nn.functional.cross_entropy(model(x.bfloat16()), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    choice = {"sparsity": SPARSITY, "total_steps": STEPS, "method": WIDE}
    whole, optimizer = begin()
    st3.sparsify(whole, optimizer, **choice)
    train(whole, optimizer, range(cut))
    saved = copy.deepcopy((whole.state_dict(), optimizer.state_dict()))
    train(whole, optimizer, range(cut, STEPS))
    again, its = begin()
    sparsifier = st3.sparsify(again, its, **choice)
    again.load_state_dict(saved[0])
    its.load_state_dict(saved[1])
    train(again, its, range(cut, STEPS))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))
    sparsifier.finalize()


def test_layers_with_a_sparsity_of_their_own_and_floors_are_met():
    choice = {"layer_sparsity": {"0": 0.5}, "min_weights": 40}
    model, optimizer, sparsifier = start(**choice)
    learn(model, optimizer, range(STEPS))
    sparsifier.finalize()
    assert int((model[0].weight == 0).sum()) == math.floor(799 * 0.5) + 1
    assert int((model[4].weight != 0).sum()) >= 40
    assert sum(int((model[i].weight == 0).sum()) for i in (2, 4)) == math.floor(1289 * SPARSITY) + 1


def test_an_average_of_past_weights_becomes_as_sparse():
    model, optimizer, sparsifier = start()
    average = copy.deepcopy(model)
    for step in range(STEPS):
        learn(model, optimizer, [step])
        for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
            slow.data.lerp_(fast.data, 0.2)
    assert sparsifier.apply_to(average) == pytest.approx(SPARSITY, abs=1e-3)


@on_ranks(2)
def test_two_processes_train_like_one():
    mine = slice(16 * dist.get_rank(), 16 * dist.get_rank() + 16)
    alone, its_optimizer, _ = start()
    wrapped = nn.parallel.DistributedDataParallel(network())
    optimizer = sgd(wrapped)
    st3.sparsify(wrapped, optimizer, sparsity=SPARSITY, total_steps=STEPS, method=WIDE)
    for step in range(STEPS):
        learn(alone, its_optimizer, [step])
        backward(wrapped, step, mine)
        optimizer.step()
        optimizer.zero_grad()
    for found, expected in zip(wrapped.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@on_ranks(2)
def test_sharded_weights_are_refused():
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(network())
    with pytest.raises(
        ValueError, match="gathered them already: train it with DistributedDataParallel instead"
    ):
        st3.sparsify(model, sgd(model), sparsity=SPARSITY, total_steps=STEPS, method=WIDE)


def test_settings_that_make_no_sense_are_refused():
    for tau in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"tau must be above 0 and finite, got {tau:g}"):
            st3.methods.PDP(tau=tau)


def test_soft_weights_are_never_so_small_that_processors_slow_down():
    raw = torch.linspace(0.0, 0.1, 10_001)
    soft = raw * st3.methods.PDP().soft_mask(raw, 0.06)
    smallest_normal = torch.finfo(torch.float32).tiny
    assert not ((soft != 0) & (soft.abs() < smallest_normal)).any()
    assert ((soft > 0) & (soft < 1e-3 * raw)).any()  # the mask itself is still soft
