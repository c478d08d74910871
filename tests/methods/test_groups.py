"""N:M methods: which weights form a group, what is zeroed in it, and what is remembered."""

import copy

import pytest
import torch
from tests.distributed.sharded import Conv1D
from tests.processes import on_ranks
from torch import distributed as dist
from torch import nn

import st3
from st3.core.families.grouped import n_largest
from st3.core.layers.find import find_layers
from st3.core.layers.groups import in_groups

STEPS = 24
METHODS = {
    "sr_ste": st3.methods.SRSTE(decay=0.01),
    "sr_ste 1:8": st3.methods.SRSTE(n=1, m=8),
    "s_ste": st3.methods.SSTE(),
}
OPTIMIZERS = {
    "sgd": lambda p, **options: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, **options),
    "adamw": lambda p, **options: torch.optim.AdamW(p, lr=0.01, **options),
}
every_method = pytest.mark.parametrize("name", METHODS)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3),  # stays dense: 3 channels
        nn.ReLU(),
        nn.Conv2d(16, 8, 3),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 3),
    )


def start(name, optimizer="sgd", **options):
    model = network()
    its_optimizer = OPTIMIZERS[optimizer](model.parameters(), **options)
    return model, its_optimizer, st3.sparsify(model, its_optimizer, total_steps=STEPS, method=METHODS[name])


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, 3, 8, 8, generator=generator), torch.randint(0, 3, (16,), generator=generator)


def backward(model, step, part=slice(None)):
    x, y = batch(step)
    nn.functional.cross_entropy(model(x[part]), y[part]).backward()


def learn(model, optimizer, steps):
    for step in steps:
        backward(model, step)
        optimizer.step()
        optimizer.zero_grad()


# ---------------------------------------------------------------- groups


def groups_by_hand(weight, m, inputs):
    """Lists of weights: m consecutive inputs of one output at one place, in (output, place..., input) order."""
    rest = [axis for axis in range(weight.dim()) if axis != inputs]
    return weight.permute(*rest, inputs).reshape(-1, m)


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (nn.Linear(8, 5), 1),
        (nn.Conv1d(8, 5, 3), 1),
        (nn.Conv2d(8, 5, 3), 1),
        (nn.Conv3d(4, 2, 2), 1),
        (nn.Conv2d(16, 6, 3, groups=2), 1),  # 8 channels each
        (nn.ConvTranspose2d(8, 5, 3), 0),
        (nn.ConvTranspose2d(16, 8, 3, groups=4), 0),
        (Conv1D(5, 8), 0),
        (nn.MultiheadAttention(8, 2), 1),
        (nn.Conv2d(8, 5, 3).to(memory_format=torch.channels_last), 1),
    ],
    ids=lambda value: str(value) if isinstance(value, nn.Module) else "",
)
@pytest.mark.parametrize("method", ["sr_ste", "s_ste"])
def test_two_of_every_four_inputs_of_an_output_stay(module, inputs, method):
    module = copy.deepcopy(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    dense = {name: p.detach().clone() for name, p in module.named_parameters()}
    exclude = "out_proj" if isinstance(module, nn.MultiheadAttention) else ()
    sparsifier = st3.sparsify(module, optimizer, total_steps=2, method=method, exclude=exclude)
    (layer,) = sparsifier.layers
    found = groups_by_hand(layer.parameter.detach(), 4, inputs)
    raw = groups_by_hand(dense[layer.name], 4, inputs)
    largest = raw.abs() >= raw.abs().sort(dim=1).values[:, 2:3]
    assert torch.equal(found != 0, largest)
    assert sparsifier.report().sparsity == 0.5


def test_layers_whose_inputs_do_not_divide_stay_dense_and_the_report_says_why():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(8, 8, 3, groups=4),
        nn.ConvTranspose2d(8, 4, 3, groups=4),
        nn.Bilinear(4, 4, 2),
        nn.Linear(8, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = st3.sparsify(model, optimizer, total_steps=2, method="sr_ste")
    assert [layer.name for layer in sparsifier.layers] == ["5.weight"]
    reasons = dict(sparsifier.report().skipped)
    assert reasons["0.weight"] == "3 input channels cannot be divided into groups of 4"
    assert reasons["1.weight"] == "1 input channel cannot be divided into groups of 4"
    assert reasons["2.weight"] == "2 input channels cannot be divided into groups of 4"
    assert reasons["3.weight"] == "2 input channels cannot be divided into groups of 4"
    assert reasons["4.weight"] == "Bilinear has no single axis of inputs for 2:4 groups"
    assert "3 input channels cannot be divided into groups of 4" in str(sparsifier.report())


def test_a_model_without_a_layer_that_divides_is_refused():
    model = nn.Conv2d(3, 8, 3)
    with pytest.raises(LookupError) as error:
        st3.sparsify(model, OPTIMIZERS["sgd"](model.parameters()), total_steps=2, method="s_ste")
    assert str(error.value) == (
        "no layer can be 2:4 sparse (weight: 3 input channels cannot be divided into groups of 4)"
    )


def test_an_embedding_has_no_inputs_to_group():
    model = nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 4))
    choice = {"method": "sr_ste", "include": [nn.Embedding, nn.Linear]}
    sparsifier = st3.sparsify(model, OPTIMIZERS["sgd"](model.parameters()), total_steps=2, **choice)
    assert [layer.name for layer in sparsifier.layers] == ["1.weight"]


@pytest.mark.parametrize("m", [2, 4, 7, 16, 17, 32])
def test_the_largest_of_a_group_are_as_many_as_asked_ties_or_not(m):
    generator = torch.Generator().manual_seed(m)
    magnitude = torch.randint(0, 4, (200, m), generator=generator).float()
    for n in {1, m // 2, m - 1}:
        mask = n_largest(magnitude, n)
        expected = magnitude.argsort(dim=1, descending=True, stable=True)[:, :n]
        assert torch.equal(mask.nonzero()[:, 1].view(-1, n), expected.sort(dim=1).values)


def test_groups_are_a_view():
    layer = find_layers(nn.Conv2d(8, 5, 3))[0]
    in_groups(layer.parameter.detach(), layer, 4).zero_()
    assert not layer.parameter.any()


# ---------------------------------------------------------------- the equations by hand


def test_small_numbers_by_hand():
    weight = torch.tensor([[4.0, -1.0, 3.0, -2.0]])
    sparse = {}
    for name in ("sr_ste", "s_ste"):
        model = nn.Linear(4, 1, bias=False)
        model.weight.data.copy_(weight)
        st3.sparsify(model, OPTIMIZERS["sgd"](model.parameters()), total_steps=2, method=name)
        sparse[name] = model.weight.detach()
    assert torch.equal(sparse["sr_ste"], torch.tensor([[4.0, 0.0, 3.0, 0.0]]))
    # 2 is subtracted: (2, 0, 1, 0); the scale is (4*2 + 3*1) / (2*2 + 1*1) = 2.2
    torch.testing.assert_close(sparse["s_ste"], 2.2 * torch.tensor([[2.0, 0.0, 1.0, 0.0]]))


def test_zeroed_weights_decay_and_active_ones_do_not():
    model = nn.Linear(4, 1, bias=False)
    model.weight.data.copy_(torch.tensor([[4.0, -1.0, 3.0, -2.0]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    st3.sparsify(model, optimizer, total_steps=2, method=st3.methods.SRSTE(decay=0.125))
    model.weight.grad = torch.tensor([[0.5, 0.5, 0.0, 0.0]])
    optimizer.step()
    raw = optimizer.state[model.weight]["st3_raw"]
    assert torch.equal(raw, torch.tensor([[3.5, -1.0 - 0.5 + 0.125, 3.0, -2.0 + 0.25]]))
    assert torch.equal(model.weight.grad, torch.tensor([[0.5, 0.5, 0.0, 0.0]]))  # the user's, as it was


def test_s_ste_is_continuous_where_two_weights_of_a_group_change_places():
    def sparse(second):
        raw = torch.tensor([[1.0, second, 0.5, 0.1]])
        out = torch.empty_like(raw)
        st3.methods.SSTE().sparse_weight(raw, n_largest(raw.abs(), 2), out)
        return out

    assert (sparse(0.5 + 1e-6) - sparse(0.5 - 1e-6)).abs().max() < 1e-5
    assert int((sparse(0.5 + 1e-3) != 0).sum()) == int((sparse(0.5 - 1e-3) != 0).sum()) == 2


@every_method
def test_a_layer_of_zeros_stays_finite(name):
    model, optimizer, sparsifier = start(name)
    sparsifier.detach()
    nn.init.zeros_(model[4].weight)
    sparsifier = st3.sparsify(model, optimizer, total_steps=STEPS, method=METHODS[name], from_sparse=True)
    learn(model, optimizer, range(STEPS))
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    sparsifier.finalize()


def test_settings_that_make_no_sense_are_refused():
    for n, m in ((0, 4), (4, 4), (5, 4)):
        with pytest.raises(ValueError) as error:
            st3.methods.SSTE(n=n, m=m)
        assert str(error.value) == f"of every m weights n stay: n must be at least 1 and below m, got {n}:{m}"
    with pytest.raises(ValueError, match=r"decay must not be negative, got -0.1"):
        st3.methods.SRSTE(decay=-0.1)


# ---------------------------------------------------------------- a run


def test_the_scale_of_s_ste_is_found_at_the_start_and_stays():
    model, optimizer, _ = start("s_ste")
    raw = network()[2].weight.detach()
    learn(model, optimizer, [0])
    sparse = raw.movedim(1, -1).reshape(-1, 4)
    sparse = sparse.sign() * (sparse.abs() - sparse.abs().sort(dim=1).values[:, 1:2]).relu()
    expected = (raw.movedim(1, -1).reshape(-1, 4) * sparse).sum() / (sparse * sparse).sum()
    torch.testing.assert_close(optimizer.state[model[2].weight]["st3_scale"], expected)
    first = optimizer.state[model[2].weight]["st3_scale"].clone()
    learn(model, optimizer, range(1, STEPS))
    assert torch.equal(optimizer.state[model[2].weight]["st3_scale"], first)


@every_method
@pytest.mark.parametrize(("optimizer", "cut"), [("adamw", 1), ("sgd", 12)])
def test_it_resumes_bit_for_bit(name, optimizer, cut, tmp_path):
    whole, its_optimizer, _ = start(name, optimizer)
    learn(whole, its_optimizer, range(STEPS))
    model, its_optimizer, _ = start(name, optimizer)
    learn(model, its_optimizer, range(cut))
    torch.save({"model": model.state_dict(), "optimizer": its_optimizer.state_dict()}, tmp_path / "c.pt")

    saved = torch.load(tmp_path / "c.pt", weights_only=True)
    for attach_first in (True, False):
        model = network()
        its_optimizer = OPTIMIZERS[optimizer](model.parameters())
        if attach_first:
            sparsifier = st3.sparsify(model, its_optimizer, total_steps=STEPS, method=METHODS[name])
        model.load_state_dict(saved["model"])
        its_optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
        if not attach_first:
            sparsifier = st3.sparsify(model, its_optimizer, total_steps=STEPS, method=METHODS[name])
        assert sparsifier.step == cut
        learn(model, its_optimizer, range(cut, STEPS))
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), whole.parameters(), strict=True))
        sparsifier.finalize()
        assert all("st3_scale" not in state for state in its_optimizer.state.values())


@every_method
def test_accumulated_gradients_count_as_one_step(name):
    whole, optimizer, _ = start(name)
    learn(whole, optimizer, range(STEPS))
    parts, optimizer, sparsifier = start(name)
    for step in range(STEPS):
        for part in (slice(0, 8), slice(8, 16)):
            x, y = batch(step)
            (nn.functional.cross_entropy(parts(x[part]), y[part]) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sparsifier.step == STEPS
    for a, b in zip(parts.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@every_method
@pytest.mark.parametrize("fused", [False, True])
def test_a_loss_scale_scales_the_loss_alone(name, fused):
    whole, optimizer, _ = start(name)
    learn(whole, optimizer, range(STEPS))
    model, optimizer, _ = start(name, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for step in range(STEPS):
        x, y = batch(step)
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    for a, b in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@every_method
def test_half_precision_forward_passes_see_the_zeros(name):
    model, optimizer, sparsifier = start(name)
    for step in range(STEPS):
        x, y = batch(step)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sparsifier.report().sparsity == METHODS[name].own_sparsity
    sparsifier.finalize()


@every_method
def test_half_precision_weights_keep_no_more_than_n_of_m(name):
    model = nn.Linear(64, 64).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    method = METHODS[name]
    sparsifier = st3.sparsify(model, optimizer, total_steps=4, method=method)
    for step in range(4):
        model.weight.grad = torch.randn(64, 64, generator=torch.Generator().manual_seed(step)).half()
        optimizer.step()
        active = (model.weight.view(-1, method.m) != 0).sum(1)
        assert int(active.max()) == method.n
        if isinstance(method, st3.methods.SRSTE):
            assert int(active.min()) == method.n  # though half precision has ties
    sparsifier.finalize()


@every_method
def test_frozen_masks_stay_and_nothing_else_is_remembered(name):
    model, optimizer, sparsifier = start(name)
    learn(model, optimizer, range(12))
    sparsifier.freeze()
    frozen = model[2].weight != 0
    learn(model, optimizer, range(12, STEPS))
    assert torch.equal(model[2].weight != 0, frozen)
    assert set(optimizer.state[model[2].weight]) == {"momentum_buffer", "st3_mask"}
    sparsifier.finalize()


def test_keep_mask_on_a_checkpoint_of_s_ste_forgets_its_scale():
    model, optimizer, _ = start("s_ste")
    learn(model, optimizer, range(3))
    other = network()
    its_optimizer = OPTIMIZERS["sgd"](other.parameters())
    other.load_state_dict(model.state_dict())
    its_optimizer.load_state_dict(optimizer.state_dict())
    st3.keep_mask(other, its_optimizer)
    assert set(its_optimizer.state[other[2].weight]) == {"momentum_buffer", "st3_mask"}


@every_method
def test_an_average_of_past_weights_gets_groups_of_its_own(name):
    model, optimizer, sparsifier = start(name)
    average = torch.optim.swa_utils.AveragedModel(model)
    for step in range(STEPS):
        learn(model, optimizer, [step])
        average.update_parameters(model)
    method = METHODS[name]
    assert sparsifier.apply_to(average) >= method.own_sparsity
    active = (average.module[2].weight.movedim(1, -1).reshape(-1, method.m) != 0).sum(1)
    assert int(active.max()) == method.n


def test_replaced_weights_are_noticed_and_adopted_with_a_new_scale():
    model, optimizer, sparsifier = start("s_ste")
    learn(model, optimizer, range(4))
    before = optimizer.state[model[2].weight]["st3_scale"].clone()
    with torch.no_grad():
        model[2].weight.copy_(torch.rand_like(model[2].weight))
    backward(model, 4)
    with pytest.raises(st3.errors.WeightsReplacedError):
        optimizer.step()
    sparsifier.adopt()
    learn(model, optimizer, range(5, 8))
    assert optimizer.state[model[2].weight]["st3_scale"] != before


def test_a_step_that_fails_leaves_the_decay_out_of_the_next_one():
    model, optimizer, _ = start("sr_ste")
    backward(model, 0)
    gradient = model[2].weight.grad.clone()

    def fail(*_):
        handle.remove()
        raise MemoryError

    handle = optimizer.register_step_pre_hook(fail)  # after ours
    with pytest.raises(MemoryError):
        optimizer.step()
    optimizer.step()
    assert torch.equal(model[2].weight.grad, gradient)


# ---------------------------------------------------------------- several processes


@every_method
@on_ranks(2)
def test_two_processes_are_one(name):
    alone, optimizer, _ = start(name)
    learn(alone, optimizer, range(STEPS))
    wrapped = nn.parallel.DistributedDataParallel(network())
    optimizer = OPTIMIZERS["sgd"](wrapped.parameters())
    sparsifier = st3.sparsify(wrapped, optimizer, total_steps=STEPS, method=METHODS[name])
    mine = slice(8 * dist.get_rank(), 8 * dist.get_rank() + 8)
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
@on_ranks(2)
def test_sharded_weights_are_sparsified_as_whole_ones_and_resume(name, tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    alone, optimizer, _ = start(name)
    learn(alone, optimizer, range(STEPS))

    def sharded():
        model = fully_shard(network())
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        return model, optimizer, st3.sparsify(model, optimizer, total_steps=STEPS, method=METHODS[name])

    model, optimizer, _ = sharded()
    learn(model, optimizer, range(10))
    dcp.save(
        dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True)),
        checkpoint_id=tmp_path,
    )
    learn(model, optimizer, range(10, STEPS))
    for a, b in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.full_tensor(), b, rtol=1e-3, atol=1e-4)

    again, optimizer, sparsifier = sharded()
    state = dict(zip(("model", "optimizer"), get_state_dict(again, optimizer), strict=True))
    dcp.load(state, checkpoint_id=tmp_path)
    set_state_dict(again, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    learn(again, optimizer, range(10, STEPS))
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(a.to_local(), b.to_local())
    sparsifier.finalize()


@on_ranks(2)
def test_inputs_that_sharding_cuts_apart_are_refused():
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(nn.Sequential(nn.Linear(8, 8), Conv1D(4, 8)))
    with pytest.raises(ValueError) as error:
        st3.sparsify(model, OPTIMIZERS["sgd"](model.parameters()), total_steps=2, method="sr_ste")
    assert "sharding cuts the inputs of layer '1.weight' (Conv1D) apart, and with them its 2:4" in str(
        error.value
    )
