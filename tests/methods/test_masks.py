"""Methods whose masks change: what is zeroed, what may return, and what is forgotten."""

import copy
import math

import pytest
import torch
from tests.processes import on_ranks
from torch import distributed as dist
from torch import nn

import st3
from st3.core.families.mask_view import MaskView, Moment, exchange_weakest

STEPS = 40
METHODS = {
    "gmp": st3.methods.GMP(),
    "gmp-7": st3.methods.GMP(every=7),
    "rigl": st3.methods.RigL(every=3),
    "set": st3.methods.SET(every=3),
    "static": st3.methods.Static(),
    "granet": st3.methods.GraNet(every=3),
    "granet-sparse": st3.methods.GraNet(every=3, initial=0.5),
    "acdc": st3.methods.ACDC(),
}
every_method = pytest.mark.parametrize("name", METHODS)
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3))


def start(name, optimizer="sgd", **choice):
    model = network()
    its_optimizer = OPTIMIZERS[optimizer](model.parameters())
    settings = {"sparsity": 0.8, "total_steps": STEPS, "method": METHODS[name], **choice}
    return model, its_optimizer, st3.sparsify(model, its_optimizer, **settings)


def batch(step, size=32):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(size, 20, generator=generator)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def backward(model, step, part=slice(None)):
    x, y = batch(step)
    nn.functional.cross_entropy(model(x[part]), y[part]).backward()


def learn(model, optimizer, steps):
    for step in steps:
        backward(model, step)
        optimizer.step()
        optimizer.zero_grad()


def masks(sparsifier):
    (optimizer,) = sparsifier.optimizers
    return {x.name: optimizer.state[x.parameter]["st3_active"].clone() for x in sparsifier.layers}


def history(name, steps=STEPS, **choice):
    """Train; yield the masks before and after each step."""
    model, optimizer, sparsifier = start(name, **choice)
    learn(model, optimizer, [0])
    before = masks(sparsifier)
    for step in range(1, steps):
        learn(model, optimizer, [step])
        after = masks(sparsifier)
        yield step + 1, before, after, model, optimizer, sparsifier
        before = after


def test_a_gmp_weight_never_returns():
    for _, before, after, *_ in history("gmp"):
        assert not any(bool((after[layer] & ~before[layer]).any()) for layer in after)


def test_gmp_takes_the_smallest_weights_of_all_layers():
    _, _, sparsifier = start("gmp", ramp="constant")
    kept = torch.cat([p.detach()[p != 0].abs() for p in (layer.parameter for layer in sparsifier.layers)])
    whole = torch.cat([layer.weight.detach().flatten().abs() for layer in network()[::2]])
    assert torch.equal(kept.sort().values, whole.sort().values[-len(kept) :])


def test_gmp_prunes_at_its_steps_and_at_the_end_of_the_ramp_only():
    moves = history("gmp-7", ramp=st3.ramps.Linear(end=31 / STEPS))
    changed = [step for step, b, a, *_ in moves if any(bool((b[x] != a[x]).any()) for x in b)]
    # 40 steps hold less than twenty times 7, so it prunes every other step.
    assert changed == [*range(2, 31, 2), 31]


@every_method
def test_zeroed_weights_are_zero_and_so_is_their_momentum(name):
    for _, _, after, model, optimizer, _ in history(name):
        for layer, mask in after.items():
            parameter = model.get_parameter(layer)
            assert not parameter[~mask].any()
            assert not optimizer.state[parameter]["momentum_buffer"][~mask].any()


@pytest.mark.parametrize("name", ["rigl", "set", "static"])
def test_every_layer_keeps_its_count_from_the_first_step_to_the_last(name):
    weights = {"0.weight": 800, "2.weight": 1200, "4.weight": 90}
    for allocation in ("uniform", "erk"):
        counts = {
            tuple(int(mask.sum()) for mask in after.values())
            for _, _, after, *_ in history(name, allocation=allocation)
        }
        assert len(counts) == 1
        assert sum(*counts) == 2090 - (math.floor(2089 * 0.8) + 1)
        if allocation == "uniform":
            assert [kept / n for kept, n in zip(*counts, weights.values(), strict=True)] == pytest.approx(
                [0.2] * 3, abs=0.01
            )


def test_a_static_mask_is_static_and_random():
    first = None
    for _, before, after, *_ in history("static"):
        first = first or before
        assert all(torch.equal(first[layer], after[layer]) for layer in first)
    _, _, other = start("static", method=st3.methods.Static(seed=1))
    assert (network()[0].weight != 0).all()
    assert not torch.equal(other.layers[0].parameter != 0, first["0.weight"])


def test_rigl_grows_where_the_gradient_is_largest_and_drops_the_smallest_weights():
    model, optimizer, sparsifier = start("rigl", method=st3.methods.RigL(every=2, drop=0.4))
    learn(model, optimizer, [0])
    before, weights = masks(sparsifier), {x.name: x.parameter.detach().clone() for x in sparsifier.layers}
    backward(model, 1)
    dense = {x.name: x.parameter.grad.clone() for x in sparsifier.layers}
    assert all(bool(grad[~before[layer]].any()) for layer, grad in dense.items() if layer != "4.weight")
    optimizer.step()
    for layer, after in masks(sparsifier).items():
        active = int(before[layer].sum())
        count = int(0.2 * (1 + math.cos(math.pi * 2 / STEPS / 0.75)) * active)
        order = weights[layer].abs().masked_fill(~before[layer], -1).flatten().argsort(descending=True)
        kept = torch.zeros(before[layer].numel(), dtype=torch.bool)
        kept[order[: active - count]] = True
        grown = dense[layer].abs().flatten().masked_fill(kept, -1).argsort(descending=True)[:count]
        expected = kept.clone()
        expected[grown] = True
        assert torch.equal(after.flatten(), expected)


@pytest.mark.parametrize(
    ("method", "step", "count"),
    [
        # drop / 2 (1 + cos(pi t / until)) of 1,000 active weights, rounded down
        (st3.methods.RigL(), 0, 300), (st3.methods.RigL(), 30, 196), (st3.methods.RigL(), 75, 0),
        (st3.methods.SET(), 30, 196),
        # 0.005 + 0.495 / 2 (1 + cos(pi t)) of them, rounded up
        (st3.methods.GraNet(), 0, 500), (st3.methods.GraNet(), 50, 253), (st3.methods.GraNet(), 99, 6),
    ],
    ids=str,
)  # fmt: skip
def test_the_number_of_exchanged_weights_is_that_of_the_papers(method, step, count):
    weight = torch.cat([torch.arange(1.0, 1001.0), torch.zeros(3000)])
    view = MaskView(
        None, weight, weight != 0, gradient=(weight == 0).float()
    )  # so that others grow than have gone
    moment = Moment(step, 100, 0.75, 0.75, 0.75, cut=lambda scores, sparsity, allocation: [view.mask])
    (mask,) = method.next_masks([view], moment)
    assert int(mask.sum()) == 1000
    gone = (view.mask & ~mask).nonzero().flatten()
    assert len(gone) <= count if isinstance(method, st3.methods.SET) else len(gone) == count
    assert gone.max() < count if len(gone) else count == 0  # the weakest


def test_of_equal_weights_and_growths_the_first_in_order_are_taken():
    weight = torch.zeros(1000)
    weight[::2] = 1.0
    view = MaskView(None, weight, weight != 0)
    found = exchange_weakest(view, 100, torch.ones(1000)).nonzero().flatten().tolist()
    kept = list(range(0, 800, 2))  # 400 of the 500 active ones
    grown = list(range(1, 201, 2))  # the first that are not kept
    assert found == sorted(kept + grown)


def test_a_nan_gradient_costs_no_weight():
    weight = torch.tensor([4.0, 3.0, 0.0, 0.0])
    growth = torch.tensor([0.0, 0.0, math.nan, 1.0])
    mask = exchange_weakest(MaskView(None, weight, weight != 0), 1, growth)
    assert mask.tolist() == [True, False, True, False]


def test_a_step_in_which_rigl_changes_masks_moves_nothing_else():
    model, optimizer, sparsifier = start("rigl", method=st3.methods.RigL(every=2))
    learn(model, optimizer, [0])
    before, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    old = masks(sparsifier)
    backward(model, 1)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    optimizer.step()
    new = masks(sparsifier)
    assert any(bool((old[layer] != new[layer]).any()) for layer in old)
    for name, parameter in model.named_parameters():
        stayed = (old[name] & new[name]) if name in old else torch.ones_like(parameter, dtype=torch.bool)
        assert torch.equal(parameter, before[name] * stayed)
    for (name, parameter), saved in zip(model.named_parameters(), state["state"].values(), strict=True):
        stayed = (old[name] & new[name]) if name in old else torch.ones_like(parameter, dtype=torch.bool)
        assert torch.equal(optimizer.state[parameter]["momentum_buffer"], saved["momentum_buffer"] * stayed)
        assert parameter.grad is not None
        if name not in old:
            assert torch.equal(parameter.grad, gradients[name])
    assert sparsifier.step == 2


def test_a_step_that_fails_leaves_no_old_gradients_for_the_next():
    model, optimizer, sparsifier = start("rigl", method=st3.methods.RigL(every=2))
    learn(model, optimizer, [0])
    backward(model, 1)

    def fail(*_):
        handle.remove()
        raise MemoryError

    handle = optimizer.register_step_pre_hook(fail)  # after ours, which has withheld the gradients
    with pytest.raises(MemoryError):
        optimizer.step()
    sparsifier.freeze()  # so that the next step changes no masks and withholds nothing
    model.zero_grad()
    backward(model, 2)
    bias = model[0].bias.grad.clone()
    optimizer.step()
    assert torch.equal(model[0].bias.grad, bias)


def test_grown_weights_start_from_zero_and_learn():
    seen = 0
    grown = {}
    for step, before, after, model, *_ in history("rigl"):
        for layer, positions in grown.items():
            seen += int((model.get_parameter(layer)[positions] != 0).sum())
        grown = {layer: after[layer] & ~before[layer] for layer in after} if step % 2 == 0 else {}
        for layer, positions in grown.items():
            assert not model.get_parameter(layer)[positions].any()
    assert seen > 50


def test_rigl_rests_after_its_time():
    changed = [step for step, b, a, *_ in history("rigl") if any(bool((b[x] != a[x]).any()) for x in b)]
    assert max(changed) <= 0.75 * STEPS
    assert changed == [step for step in changed if step % 2 == 0]


def test_set_leaves_the_random_numbers_of_torch_alone():
    model, optimizer, _ = start("set")
    state = torch.get_rng_state()
    learn(model, optimizer, range(STEPS))
    st3.sparsify(
        other := network(), OPTIMIZERS["sgd"](other.parameters()), sparsity=0.8, total_steps=9, method="set"
    )
    torch.manual_seed(0)
    network()
    assert torch.equal(torch.get_rng_state(), state)


def test_granet_loses_weights_as_the_ramp_rises_and_keeps_exchanging_others():
    zeros, revived = [], 0
    for _, before, after, *_ in history("granet"):
        zeros.append(sum(int((~mask).sum()) for mask in after.values()))
        revived += sum(int((after[layer] & ~before[layer]).sum()) for layer in after)
    assert zeros == sorted(zeros)
    assert zeros[-1] == math.floor(2089 * 0.8) + 1
    assert revived > 100


def test_granet_may_begin_sparse():
    _, _, sparsifier = start("granet-sparse", allocation="erk")
    found = sum(int((layer.parameter == 0).sum()) for layer in sparsifier.layers)
    assert found == math.floor(2089 * 0.5) + 1


def changes(name, **choice):
    """Return the steps in which the masks became larger, and those in which they became smaller."""
    grown, shrunk = [], []
    for step, before, after, *_ in history(name, **choice):
        if any(bool((after[layer] & ~before[layer]).any()) for layer in after):
            grown.append(step)
        if any(bool((before[layer] & ~after[layer]).any()) for layer in after):
            shrunk.append(step)
    return grown, shrunk


def test_acdc_prunes_and_restores_when_its_phases_say():
    # 100 steps as the 100 epochs of the authors' ImageNet runs
    grown, shrunk = changes("acdc", steps=100, total_steps=100)
    assert shrunk == [10, 20, 30, 40, 50, 60, 70, 85]
    assert grown == [15, 25, 35, 45, 55, 65, 75]


def test_acdc_has_the_phases_of_the_authors_cifar_runs_by_its_settings():
    method = st3.methods.ACDC(warm_up=0.05, until=0.85, rounds=4, rest=1)
    grown, shrunk = changes("acdc", steps=100, total_steps=100, method=method)
    assert shrunk == [5, 25, 45, 65, 85]  # half of their epochs 10, 50, 90, 130, 170
    assert grown == [15, 35, 55, 75]


def test_acdc_prunes_the_smallest_weights_of_all_layers():
    model, optimizer, sparsifier = start("acdc")
    learn(model, optimizer, range(3))
    before = {x.name: x.parameter.detach().clone() for x in sparsifier.layers}
    optimizer.param_groups[0]["lr"] = 0.0  # step 4 prunes, and moves nothing
    learn(model, optimizer, [3])
    whole = torch.cat([weight.flatten().abs() for weight in before.values()])
    limit = whole.sort().values[math.floor(2089 * 0.8)]
    for layer, mask in masks(sparsifier).items():
        assert torch.equal(mask, before[layer].abs() > limit)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_with_a_dense_phase_weights_return_from_zero_and_the_optimizer_starts_over(optimizer):
    model, its_optimizer, sparsifier = start("acdc", optimizer, total_steps=100)
    learn(model, its_optimizer, range(14))
    zeroed = {layer: ~mask for layer, mask in masks(sparsifier).items()}
    assert sum(int(mask.sum()) for mask in zeroed.values()) == math.floor(2089 * 0.8) + 1
    learn(model, its_optimizer, [14])
    assert all(bool(mask.all()) for mask in masks(sparsifier).values())
    for parameter in model.parameters():  # of biases, too
        for key, value in its_optimizer.state[parameter].items():
            assert key == "st3_active" or not value.any(), key
    for layer, positions in zeroed.items():
        assert not model.get_parameter(layer)[positions].any()
    learn(model, its_optimizer, [15])
    assert all(bool(model.get_parameter(layer)[mask].any()) for layer, mask in zeroed.items())


def test_acdc_that_stops_in_a_dense_phase_says_so():
    model, optimizer, sparsifier = start("acdc", total_steps=100)
    learn(model, optimizer, range(78))
    assert not sparsifier.at_target
    with pytest.raises(
        st3.errors.TargetMissedError, match="training stopped at step 78, before the ramp's end"
    ):
        sparsifier.finalize()


@every_method
@pytest.mark.parametrize(("optimizer", "cut"), [("adamw", 1), ("sgd", 12)])
def test_it_resumes_bit_for_bit(name, optimizer, cut, tmp_path):
    whole, its_optimizer, _ = start(name, optimizer)
    learn(whole, its_optimizer, range(STEPS))
    model, its_optimizer, _ = start(name, optimizer)
    learn(model, its_optimizer, range(cut))
    torch.save({"model": model.state_dict(), "optimizer": its_optimizer.state_dict()}, tmp_path / "c.pt")

    saved = torch.load(tmp_path / "c.pt", weights_only=True)
    model, its_optimizer, sparsifier = start(name, optimizer)
    model.load_state_dict(saved["model"])
    its_optimizer.load_state_dict(saved["optimizer"])
    assert sparsifier.step == cut
    learn(model, its_optimizer, range(cut, STEPS))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), whole.parameters(), strict=True))
    sparsifier.finalize()


@pytest.mark.parametrize("name", ["gmp", "rigl", "granet", "acdc"])
def test_accumulated_gradients_count_as_one_step(name):
    whole, optimizer, _ = start(name)
    learn(whole, optimizer, range(STEPS))
    parts, optimizer, sparsifier = start(name)
    for step in range(STEPS):
        for part in (slice(0, 16), slice(16, 32)):
            x, y = batch(step)
            (nn.functional.cross_entropy(parts(x[part]), y[part]) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sparsifier.step == STEPS
    for a, b in zip(parts.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["gmp", "rigl", "set", "granet-sparse", "acdc"])
@on_ranks(2)
def test_two_processes_hold_the_same_masks_and_weights_as_one(name):
    alone, optimizer, _ = start(name)
    learn(alone, optimizer, range(STEPS))
    wrapped = nn.parallel.DistributedDataParallel(network())
    optimizer = OPTIMIZERS["sgd"](wrapped.parameters())
    sparsifier = st3.sparsify(wrapped, optimizer, sparsity=0.8, total_steps=STEPS, method=METHODS[name])
    mine = slice(16 * dist.get_rank(), 16 * dist.get_rank() + 16)
    for step in range(STEPS):
        backward(wrapped, step, mine)
        optimizer.step()
        optimizer.zero_grad()
    for a, b in zip(wrapped.module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
        other = a.detach().clone()
        dist.broadcast(other, src=0)
        assert torch.equal(other, a)
    sparsifier.finalize()


@every_method
def test_half_precision_weights_are_counted_exactly(name):
    model = network().half()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=STEPS, method=METHODS[name])
    for step in range(STEPS):
        x, y = batch(step)
        nn.functional.cross_entropy(model(x.half()).float(), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sum(int((~mask).sum()) for mask in masks(sparsifier).values()) == math.floor(2089 * 0.8) + 1
    sparsifier.finalize()


@every_method
def test_frozen_masks_stay_frozen_when_resumed(name):
    model, optimizer, sparsifier = start(name)
    learn(model, optimizer, range(20))
    sparsifier.freeze()
    frozen = {layer.name: optimizer.state[layer.parameter]["st3_mask"].clone() for layer in sparsifier.layers}
    learn(model, optimizer, range(20, 24))
    other, its_optimizer, its_sparsifier = start(name)
    other.load_state_dict(model.state_dict())
    its_optimizer.load_state_dict(optimizer.state_dict())
    assert its_sparsifier.is_frozen
    learn(other, its_optimizer, range(24, STEPS))
    for layer in its_sparsifier.layers:
        assert not layer.parameter[~frozen[layer.name]].any()
        assert layer.parameter[frozen[layer.name]].any()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: st3.methods.GMP(every=0), "every must be a whole number of at least 1, got 0"),
        (
            lambda: st3.methods.RigL(drop=1.0),
            "drop is a part of the active weights, above 0 and below 1, got 1.0",
        ),
        (lambda: st3.methods.SET(until=0), "until is a part of the run, above 0 and at most 1, got 0"),
        (lambda: st3.methods.GraNet(exchange=2), "exchange is a part of the active weights"),
        (lambda: st3.methods.ACDC(warm_up=0.9), "the first before the second, got 0.9 and 0.85"),
        (lambda: st3.methods.ACDC(rounds=0), "rounds must be a whole number of at least 1, got 0"),
        (lambda: st3.methods.GraNet(initial=1.0), "initial is a sparsity, at least 0 and below 1, got 1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, complaint):
    with pytest.raises(ValueError) as error:
        make()
    assert complaint in str(error.value)


@on_ranks(2)
def test_methods_that_exchange_weights_within_a_layer_refuse_sharded_ones():
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(network())
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    with pytest.raises(ValueError, match="RigL exchanges weights within a layer, which must be whole"):
        st3.sparsify(model, optimizer, sparsity=0.8, total_steps=STEPS, method="rigl")
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=STEPS, method="gmp")
    learn(model, optimizer, range(STEPS))
    sparsifier.finalize()


@on_ranks(2)
def test_acdc_with_sharded_weights_is_acdc_with_whole_ones():
    from torch.distributed.fsdp import fully_shard

    alone, its_optimizer, _ = start("acdc")
    learn(alone, its_optimizer, range(STEPS))
    model = fully_shard(network())
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=STEPS, method="acdc")
    learn(model, optimizer, range(STEPS))
    for a, b in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.full_tensor(), b, rtol=1e-3, atol=1e-4)
    sparsifier.finalize()
