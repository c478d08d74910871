"""STR: learned thresholds beside the weights, against autograd through the textbook form and in ordinary loops."""

import copy
import math

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

STEPS = 40
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "plain": lambda p: torch.optim.SGD(p, lr=0.5, weight_decay=1e-3),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.05),
}


def network(dtype=torch.float32):
    torch.manual_seed(0)
    layers = (
        nn.Linear(20, 40),
        nn.BatchNorm1d(40),
        nn.ReLU(),
        nn.Linear(40, 30),
        nn.ReLU(),
        nn.Linear(30, 3),
    )
    return nn.Sequential(*layers).to(dtype)


def batch(step, size=32, dtype=torch.float32):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(size, 20, generator=generator, dtype=dtype)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def loss_of(model, step, part=slice(None)):
    x, y = batch(step, dtype=next(model.parameters()).dtype)
    return nn.functional.cross_entropy(model(x[part]), y[part])


def learn(model, optimizer, steps):
    for step in steps:
        loss_of(model, step).backward()
        optimizer.step()
        optimizer.zero_grad()


def start(kind="sgd", method=st3.methods.STR(init=-4, weight_decay=0.01), dtype=torch.float32):  # noqa: B008
    model = network(dtype)
    optimizer = OPTIMIZERS[kind](model.parameters())
    return model, optimizer, st3.sparsify(model, optimizer, method=method)


def numbers(sparsifier):
    (optimizer,) = sparsifier.optimizers
    return {x.name: optimizer.state[x.parameter]["st3_threshold"].clone() for x in sparsifier.layers}


# ---------------------------------------------------------------- the equations


@pytest.mark.parametrize(
    ("kind", "decay"),
    [("sgd", None), ("sgd", 0.02), ("plain", None), ("nesterov", None), ("adam", 0.02), ("adamw", None)],
)
def test_a_run_agrees_with_autograd_through_the_textbook_form(kind, decay):
    model, reference = network(torch.float64), network(torch.float64)
    optimizer = OPTIMIZERS[kind](model.parameters())
    sparsifier = st3.sparsify(model, optimizer, method=st3.methods.STR(init=-2, weight_decay=decay))
    names = [layer.name for layer in sparsifier.layers]
    learned = {name: nn.Parameter(torch.tensor(-2.0, dtype=torch.float64)) for name in names}
    own = {} if decay is None else {"weight_decay": decay}
    groups = [{"params": list(reference.parameters())}, {"params": list(learned.values()), **own}]
    its_optimizer = OPTIMIZERS[kind](groups)
    for step in range(80):
        learn(model, optimizer, [step])
        raw = dict(reference.named_parameters())
        sparse = {n: raw[n].sign() * torch.relu(raw[n].abs() - torch.sigmoid(learned[n])) for n in names}
        x, y = batch(step, dtype=torch.float64)
        nn.functional.cross_entropy(functional_call(reference, raw | sparse, (x,)), y).backward()
        its_optimizer.step()
        its_optimizer.zero_grad()
    for name, number in numbers(sparsifier).items():
        assert abs(number - learned[name]) < 1e-9
        assert abs(number + 2) > 0.02  # it has been learned at all
        found = optimizer.state[model.get_parameter(name)]["st3_raw"]
        assert torch.allclose(found, reference.get_parameter(name), rtol=0, atol=1e-9)


def test_far_below_zero_the_learned_number_follows_weight_decay_alone():
    """With the authors' settings for 90.23 % and no gradient: -506 after 10 epochs, -53 after 20, -6.7 after 30."""
    layer = nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.256, momentum=0.875, weight_decay=2.251757813e-5)
    st3.sparsify(layer, optimizer, method="str")
    found = {}
    for step in range(30 * STEPS):  # epochs of 40 steps instead of 5004, so the decay is stronger by as much
        epoch = step // STEPS
        factor = (step + 1) / (5 * STEPS) if epoch < 5 else 0.5 * (1 + math.cos(math.pi * (epoch - 5) / 95))
        optimizer.param_groups[0].update(lr=0.256 * factor, weight_decay=2.251757813e-5 * 5004 / STEPS)
        layer.weight.grad = torch.zeros(4, 4)
        optimizer.step()
        found[(step + 1) / STEPS] = float(optimizer.state[layer.weight]["st3_threshold"])
    assert [found[10], found[20]] == pytest.approx([-506, -53], rel=0.06)
    assert found[30] == pytest.approx(-6.7, rel=0.2)  # coarser steps decay a little faster


def test_a_positive_weight_pushed_down_raises_its_threshold():
    """Negative gradient of s where sign(W) * dL/dW_sparse is positive: descent raises s."""
    method = st3.methods.STR(init=-1.0)
    s = torch.tensor(-1.0)
    slope = method.variable_gradient(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), s)
    assert slope == pytest.approx(-float(torch.sigmoid(s) * (1 - torch.sigmoid(s))))


# ---------------------------------------------------------------- no target


def test_it_becomes_sparse_and_says_how_much():
    model, optimizer, sparsifier = start(method=st3.methods.STR(init=-4, weight_decay=0.05))
    learn(model, optimizer, range(STEPS))
    found = sparsifier.report()
    assert found.target is None
    assert 0.2 < found.sparsity < 0.999
    assert sparsifier.sparsity is None
    assert "target" not in str(found)
    assert repr(sparsifier).startswith("Sparsifier(STR(init=-4, weight_decay=0.05), step 40)\n")
    assert sparsifier.finalize() is model
    assert sum(int((layer.parameter == 0).sum()) for layer in sparsifier.layers) == found.zeros
    assert all(not key.startswith("st3") for state in optimizer.state.values() for key in state)


def test_a_stronger_decay_of_the_number_gives_more_zeros():
    zeros = []
    for decay in (0.0, 0.02, 0.05):
        model, optimizer, sparsifier = start(method=st3.methods.STR(init=-5, weight_decay=decay))
        learn(model, optimizer, range(50))
        zeros.append(sparsifier.report().zeros)
    assert zeros == sorted(zeros)
    assert zeros[0] < zeros[1] < zeros[2]


def test_at_its_usual_beginning_it_is_dense_training_until_decay_has_lifted_it():
    model, optimizer, sparsifier = start(method="str")
    plain = network()
    its_optimizer = OPTIMIZERS["sgd"](plain.parameters())
    learn(model, optimizer, range(10))
    learn(plain, its_optimizer, range(10))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    assert all(-3200 < number < -3190 for number in numbers(sparsifier).values())


@pytest.mark.parametrize(
    "choice",
    [
        {"sparsity": 0.9},
        {"sparsity": 0.0},
        {"ramp": "cubic"},
        {"allocation": "erk"},
        {"ramp": st3.ramps.Cubic(start=0.1, end=0.5)},
        {"min_weights": 3},
        {"layer_sparsity": {"0.weight": 0.5}},
    ],
    ids=lambda choice: ", ".join(choice),
)
def test_a_target_cannot_be_asked_for(choice):
    model = network()
    wish = f"no sparsity can be asked of it: leave {', '.join(choice)} out"
    with pytest.raises(ValueError, match=wish):
        st3.sparsify(model, OPTIMIZERS["sgd"](model.parameters()), method="str", **choice)


def test_only_the_last_model_of_a_run_counts_since_those_before_are_denser():
    model = network()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    sparsifier = st3.sparsify(model, optimizer, method="str", total_steps=3)
    assert [(learn(model, optimizer, [step]), sparsifier.at_target)[1] for step in range(3)] == [
        False,
        False,
        True,
    ]


# ---------------------------------------------------------------- refusals


def test_an_optimizer_whose_rule_is_not_known_is_refused():
    model = network()
    with pytest.raises(ValueError, match="knows those of SGD, Adam, AdamW, not of RMSprop: use one of these"):
        st3.sparsify(model, torch.optim.RMSprop(model.parameters()), method="str")


def test_half_precision_weights_are_refused_but_not_autocast():
    model = network().bfloat16()
    with pytest.raises(ValueError, match=r"a threshold in steps too small for torch.bfloat16"):
        st3.sparsify(model, OPTIMIZERS["sgd"](model.parameters()), method="str")
    with pytest.raises(ValueError, match="weight_decay must not be negative, got -1"):
        st3.methods.STR(weight_decay=-1)


@pytest.mark.parametrize("order", ["attach, load", "load, attach"])
def test_a_checkpoint_of_another_method_is_refused(order):
    model = network()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    st3.sparsify(model, optimizer, sparsity=0.5, total_steps=4)
    learn(model, optimizer, [0])
    saved = copy.deepcopy(optimizer.state_dict())
    other = network()
    its_optimizer = OPTIMIZERS["sgd"](other.parameters())
    acts = {
        "load": lambda: its_optimizer.load_state_dict(saved),
        "attach": lambda: st3.sparsify(other, its_optimizer, method="str"),
    }
    first, second = order.split(", ")
    acts[first]()
    with pytest.raises(
        st3.errors.CheckpointError, match=r"no learned variable for layer '0.weight'.*a learned threshold"
    ):
        acts[second]()


def test_its_own_checkpoint_is_refused_by_another_method():
    model, optimizer, _ = start()
    learn(model, optimizer, [0])
    other = network()
    its_optimizer = OPTIMIZERS["sgd"](other.parameters())
    st3.sparsify(other, its_optimizer, sparsity=0.5, total_steps=4)
    with pytest.raises(
        st3.errors.CheckpointError, match=r"a learned threshold for layer .* and this method needs none"
    ):
        its_optimizer.load_state_dict(optimizer.state_dict())


# ---------------------------------------------------------------- ordinary loops


@pytest.mark.parametrize(
    ("kind", "cut", "order"),
    [
        ("sgd", 12, "attach, load"),
        ("plain", 1, "load, attach"),
        ("nesterov", 12, "load, attach"),
        ("adam", 1, "attach, load"),
        ("adamw", 12, "attach, load"),
    ],
)
def test_it_resumes_bit_for_bit(kind, cut, order, tmp_path):
    whole, its_optimizer, sparsifier = start(kind)
    learn(whole, its_optimizer, range(STEPS))
    model, optimizer, _ = start(kind)
    learn(model, optimizer, range(cut))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")

    saved = torch.load(tmp_path / "c.pt", weights_only=True)
    model = network()
    optimizer = OPTIMIZERS[kind](model.parameters())
    for action in order.split(", "):
        if action == "load":
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        else:
            resumed = st3.sparsify(model, optimizer, method=st3.methods.STR(init=-4, weight_decay=0.01))
    assert resumed.step == cut
    learn(model, optimizer, range(cut, STEPS))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), whole.parameters(), strict=True))
    assert numbers(resumed) == numbers(sparsifier)


def test_accumulated_micro_batches_under_clipping_are_one_step():
    def norm_free(dtype):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 3)).to(dtype)

    results = []
    for parts in ([slice(None)], [slice(0, 16), slice(16, 32)]):
        model = norm_free(torch.float64)
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        sparsifier = st3.sparsify(model, optimizer, method=st3.methods.STR(init=-3))
        for step in range(10):
            for part in parts:
                (loss_of(model, step, part) / len(parts)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
        results.append(numbers(sparsifier))
    torch.testing.assert_close(*results, rtol=1e-9, atol=0)


def test_a_skipped_step_of_a_fused_optimizer_moves_no_threshold_and_a_scaled_one_is_unscaled():
    results = []
    for scale in (None, torch.tensor(64.0)):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
        sparsifier = st3.sparsify(model, optimizer, method=st3.methods.STR(init=-3))
        for step in range(6):
            (loss_of(model, step) * (1.0 if scale is None else scale)).backward()
            if scale is not None:  # as GradScaler does for an optimizer that unscales by itself
                optimizer.grad_scale, optimizer.found_inf = scale, torch.tensor(0.0)
            optimizer.step()
            optimizer.zero_grad()
        results.append(numbers(sparsifier))
    torch.testing.assert_close(*results)
    optimizer.found_inf = torch.tensor(1.0)
    loss_of(model, 6).backward()
    optimizer.step()
    assert numbers(sparsifier) == results[1]


def test_after_freezing_the_thresholds_are_gone_and_the_zeros_stay():
    model, optimizer, sparsifier = start(method=st3.methods.STR(init=-2))
    learn(model, optimizer, range(4))
    zeros = {layer.name: layer.parameter == 0 for layer in sparsifier.layers}
    sparsifier.freeze()
    learn(model, optimizer, range(4, 8))
    for layer in sparsifier.layers:
        assert torch.equal(layer.parameter == 0, zeros[layer.name])
        assert "st3_threshold" not in optimizer.state[layer.parameter]


@on_ranks(2)
def test_two_processes_learn_the_thresholds_of_one():
    def norm_free():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 3)).double()

    from torch.distributed.fsdp import fully_shard

    found = []
    mine = slice(16 * dist.get_rank(), 16 * dist.get_rank() + 16)
    whole = slice(None)
    for wrap, part in ((None, whole), (nn.parallel.DistributedDataParallel, mine), (fully_shard, mine)):
        model = norm_free() if wrap is None else wrap(norm_free())
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        sparsifier = st3.sparsify(model, optimizer, method=st3.methods.STR(init=-3, weight_decay=0.01))
        for step in range(12):
            loss_of(model, step, part).backward()
            optimizer.step()
            optimizer.zero_grad()
        found.append([float(number) for number in numbers(sparsifier).values()])
        zeros = sparsifier.report().zeros
        assert zeros > 100
    assert found[1] == pytest.approx(found[0], rel=1e-9)
    assert found[2] == pytest.approx(found[0], rel=1e-9)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@on_ranks(2)
def test_sharded_checkpoints_resume_bit_for_bit(kind, tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import state_dict
    from torch.distributed.fsdp import fully_shard

    def begin():
        model = fully_shard(network())
        optimizer = OPTIMIZERS[kind](model.parameters())
        return (
            model,
            optimizer,
            st3.sparsify(model, optimizer, method=st3.methods.STR(init=-3, weight_decay=0.01)),
        )

    def state(model, optimizer):
        model_state, optimizer_state = state_dict.get_state_dict(model, optimizer)
        return {"model": model_state, "optimizer": optimizer_state}

    model, optimizer, sparsifier = begin()
    learn(model, optimizer, range(4))
    dcp.save(state(model, optimizer), checkpoint_id=tmp_path)
    other, its_optimizer, its_sparsifier = begin()
    saved = state(other, its_optimizer)
    dcp.load(saved, checkpoint_id=tmp_path)
    loaded = {"model_state_dict": saved["model"], "optim_state_dict": saved["optimizer"]}
    state_dict.set_state_dict(other, its_optimizer, **loaded)
    assert its_sparsifier.step == 4
    assert numbers(its_sparsifier) == numbers(sparsifier)
    learn(model, optimizer, range(4, 8))
    learn(other, its_optimizer, range(4, 8))
    assert numbers(its_sparsifier) == numbers(sparsifier)
    assert its_sparsifier.report().zeros == sparsifier.report().zeros
