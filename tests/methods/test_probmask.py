"""ProbMask: random masks by learned probabilities, against autograd with the same noise and in ordinary loops."""

import copy
import pickle

import pytest
import torch
from tests.processes import on_ranks
from torch import distributed as dist
from torch import nn
from torch.func import functional_call

import st3
from st3.core.projection import project

pytestmark = pytest.mark.filterwarnings(
    "ignore::st3.errors.LayerCollapseWarning"
)  # small layers lose filters

STEPS = 40
QUICK = st3.methods.ProbMask(lr=0.05)
TARGET = {"sparsity": 0.8, "total_steps": STEPS}


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3)).to(
        dtype
    )


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def start(method=QUICK, dtype=torch.float32, **choice):
    model = network(dtype)
    optimizer = sgd(model)
    return model, optimizer, st3.sparsify(model, optimizer, method=method, **TARGET | choice)


def batch(step, dtype=torch.float32):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(32, 20, generator=generator, dtype=dtype)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def backward(model, step, part=slice(None), factor=1.0):
    x, y = batch(step, next(model.parameters()).dtype)
    (nn.functional.cross_entropy(model(x[part]), y[part]) * factor).backward()


def learn(model, optimizer, steps, passes=2):
    for step in steps:
        for _ in range(passes):
            backward(model, step, factor=1 / passes)
        optimizer.step()
        optimizer.zero_grad()


def probabilities(sparsifier):
    (optimizer,) = sparsifier.optimizers
    return {x.name: optimizer.state[x.parameter]["st3_probability"].clone() for x in sparsifier.layers}


def zeros(model):
    return sum(int((p == 0).sum()) for p in model.parameters() if p.dim() > 1)


# ---------------------------------------------------------------- the equations


def bisected(values, budget):
    """The textbook's projection, by halving."""
    if values.clamp(0, 1).sum() <= budget:
        return values.clamp(0, 1)
    low, high = 0.0, float(values.max())
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (values - middle).clamp(0, 1).sum() > budget else (low, middle)
    return (values - high).clamp(0, 1)


@pytest.mark.parametrize("passes", [1, 2])
def test_a_whole_search_agrees_with_autograd_under_the_same_noise(passes):
    model, optimizer, sparsifier = start(st3.methods.ProbMask(lr=0.05, finetune=0.0), torch.float64)
    reference = network(torch.float64)
    names = [layer.name for layer in sparsifier.layers]
    learned = {n: nn.Parameter(torch.ones_like(reference.get_parameter(n))) for n in names}
    of_weights, of_masks = sgd(reference), torch.optim.Adam(learned.values(), lr=0.05)
    sizes = [learned[n].numel() for n in names]
    for step in range(STEPS - 1):
        x, y = batch(step, torch.float64)
        sharpness = 1 / (0.97 * (1 - step / STEPS) + 0.03)
        for number in range(passes):
            uniforms = sparsifier._conductor.family._uniforms(number)  # the noise of this pass
            raw, sparse = dict(reference.named_parameters()), {}
            for name, u in zip(names, uniforms, strict=True):
                p, z = learned[name], torch.log(u) - torch.log1p(-u)
                mask = torch.sigmoid((torch.log(p + 1e-20) - torch.log(1 - p + 1e-20) + z) * sharpness)
                sparse[name] = raw[name] * mask
            loss = nn.functional.cross_entropy(functional_call(reference, raw | sparse, (x,)), y)
            (loss / passes).backward()
        learn(model, optimizer, [step], passes)
        of_masks.param_groups[0]["lr"] = (
            0.05 * 0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / STEPS)).item())
        )
        of_weights.step()
        of_masks.step()
        of_weights.zero_grad()
        of_masks.zero_grad()
        kept = (1 - sparsifier.asked(step + 1)) * sum(sizes)
        with torch.no_grad():
            flat = bisected(torch.cat([learned[n].flatten() for n in names]), kept)
            for name, part in zip(names, flat.split(sizes), strict=True):
                learned[name].copy_(part.view_as(learned[name]))
    for name, probability in probabilities(sparsifier).items():
        assert torch.allclose(probability, learned[name], rtol=0, atol=1e-7)  # Adam divides by small numbers
        assert float(probability.std()) > 0
        raw = optimizer.state[model.get_parameter(name)]["st3_raw"]
        assert torch.allclose(raw, reference.get_parameter(name), rtol=0, atol=1e-7)


@pytest.mark.parametrize("budget", [0.5, 3.0, 100.0, 432.1, 499.0])
def test_the_projection_meets_the_budget_inside_the_box(budget):
    torch.manual_seed(1)
    values = torch.rand(1000, dtype=torch.float64) * 1.4 - 0.2  # Adam may leave the box
    values[:50] = 1.0
    parts = [values[:300].clone(), values[300:].clone().view(70, 10)]
    project(parts, budget)
    found = torch.cat([part.flatten() for part in parts])
    assert float(found.sum()) == pytest.approx(budget, abs=1e-6)
    assert found.min() >= 0 and found.max() <= 1  # noqa: PT018
    assert torch.allclose(found, bisected(values, budget), atol=1e-9)


def test_below_the_budget_the_projection_only_keeps_the_box():
    values = torch.tensor([0.5, 0.2, 0.0])
    project([values], 2.0)
    assert values.tolist() == pytest.approx([0.5, 0.2, 0.0])
    values = torch.tensor([1.2, 0.2, -0.1])
    project([values], 2.0)
    assert values.tolist() == pytest.approx([1.0, 0.2, 0.0])


def test_the_probabilities_add_up_to_what_the_ramp_leaves():
    model, optimizer, sparsifier = start()
    for step in range(30):
        learn(model, optimizer, [step])
        total = sum(float(p.sum()) for p in probabilities(sparsifier).values())
        assert total <= (1 - sparsifier.asked(step + 1)) * 2090 + 1e-2


# ---------------------------------------------------------------- what the model holds


def test_between_steps_and_in_evaluation_the_weights_are_plain_and_sparse():
    model, optimizer, sparsifier = start()
    learn(model, optimizer, range(30))  # the ramp is over, the search is not
    held = copy.deepcopy(model.state_dict())
    assert zeros(model) == int(2089 * 0.8) + 1
    backward(model, 30)
    assert zeros(model) < 800  # relaxed masks: few are 0 by rounding
    x, _ = batch(30)
    with torch.no_grad():
        model(x)  # in training mode, without gradients: as batch norm is re-estimated
    assert all(torch.equal(held[key], value) for key, value in model.state_dict().items())
    backward(model, 30)
    model.eval()(x)
    assert all(torch.equal(held[key], value) for key, value in model.state_dict().items())
    assert sparsifier.at_target
    raw = optimizer.state[model[0].weight]["st3_raw"]
    active = model[0].weight != 0
    assert torch.equal(model[0].weight[active], raw[active])


def test_the_most_probable_weights_are_kept():
    model, optimizer, sparsifier = start()
    learn(model, optimizer, range(34))
    found = probabilities(sparsifier)
    active = torch.cat([found[x.name][x.parameter != 0] for x in sparsifier.layers])
    others = torch.cat([found[x.name][x.parameter == 0] for x in sparsifier.layers])
    assert active.min() >= others.max() - 1e-8


def test_every_pass_draws_its_own_masks_and_no_random_number_of_torch():
    model, optimizer, _ = start()
    learn(model, optimizer, range(12))
    torch.manual_seed(5)
    state = torch.get_rng_state()
    seen = []
    for _ in range(2):
        backward(model, 12)
        seen.append(model[0].weight.detach().clone())
    assert not torch.equal(*seen)
    assert torch.equal(torch.get_rng_state(), state)


def test_after_the_search_the_masks_are_fixed_and_the_model_is_plain():
    model, optimizer, sparsifier = start()
    learn(model, optimizer, range(36))  # 4 steps of 40 are for fine-tuning
    assert sparsifier.is_frozen
    assert sparsifier.method.passes == 1
    assert not model._forward_pre_hooks
    mask = model[0].weight != 0
    before = model[0].weight.detach().clone()
    learn(model, optimizer, range(36, STEPS), passes=1)
    assert torch.equal(model[0].weight != 0, mask)
    assert not torch.equal(model[0].weight, before)
    assert {key for state in optimizer.state.values() for key in state} == {"momentum_buffer", "st3_mask"}
    sparsifier.finalize()


def test_random_final_masks_miss_the_target_by_a_little_and_say_so():
    model, optimizer, sparsifier = start(st3.methods.ProbMask(lr=0.05, final="random"))
    learn(model, optimizer, range(STEPS))
    sparsifier.finalize()
    found = sparsifier.report()
    assert found.sparsity == pytest.approx(0.8, abs=0.05)
    assert found.zeros != int(2089 * 0.8) + 1  # of this seed


def test_a_copy_or_pickle_in_the_middle_of_the_search_is_independent():
    model, optimizer, _ = start()
    learn(model, optimizer, range(20))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        held = copy.deepcopy(model.state_dict())
        backward(twin, 20)
        assert all(torch.equal(held[key], value) for key, value in twin.state_dict().items())
        assert all(torch.equal(held[key], value) for key, value in model.state_dict().items())


# ---------------------------------------------------------------- ordinary loops


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


@pytest.mark.parametrize(
    ("cut", "order", "make"),
    [
        (1, "load, attach", sgd),
        (20, "attach, load", sgd),
        (20, "load, attach", adamw),
        (37, "attach, load", adamw),
        (37, "load, attach", sgd),
    ],
)
def test_it_resumes_bit_for_bit(cut, order, make, tmp_path):
    def begin():
        model = network()
        return model, make(model)

    whole, its_optimizer = begin()
    st3.sparsify(whole, its_optimizer, method=QUICK, **TARGET)
    learn(whole, its_optimizer, range(STEPS))
    model, optimizer = begin()
    st3.sparsify(model, optimizer, method=QUICK, **TARGET)
    learn(model, optimizer, range(cut))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    saved = torch.load(tmp_path / "c.pt", weights_only=True)
    model, optimizer = begin()
    for action in order.split(", "):
        if action == "load":
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        else:
            sparsifier = st3.sparsify(model, optimizer, method=QUICK, **TARGET)
    assert sparsifier.step == cut
    assert sparsifier.is_frozen == (cut > 36)
    learn(model, optimizer, range(cut, STEPS))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), whole.parameters(), strict=True))
    sparsifier.finalize()


@on_ranks(2)
def test_two_processes_search_like_one():
    mine = slice(16 * dist.get_rank(), 16 * dist.get_rank() + 16)
    alone, its_optimizer, its_sparsifier = start(dtype=torch.float64)
    wrapped = nn.parallel.DistributedDataParallel(network(torch.float64))
    optimizer = sgd(wrapped)
    sparsifier = st3.sparsify(wrapped, optimizer, method=QUICK, **TARGET)
    for step in range(STEPS):
        for number in range(2):
            backward(alone, step, factor=0.5)
            if number == 0 and step % 2:
                with wrapped.no_sync():
                    backward(wrapped, step, mine, factor=0.5)
            else:
                backward(wrapped, step, mine, factor=0.5)
        for model, its in ((alone, its_optimizer), (wrapped, optimizer)):
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            its.step()
            its.zero_grad()
        if step == 30:
            found, expected = probabilities(sparsifier), probabilities(its_sparsifier)
            for name, value in found.items():
                torch.testing.assert_close(value, expected[name.removeprefix("module.")], rtol=0, atol=1e-6)
    for a, b in zip(wrapped.module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
        other = a.detach().clone()
        dist.broadcast(other, src=0)
        assert torch.equal(other, a)
    sparsifier.finalize()


def test_probabilities_are_unscaled_and_clipped_along_with_the_weights():
    """Not through GradScaler, which needs a CUDA device, but as it does it: before the step, unseen by us."""
    found = []
    for scale in (1.0, 1024.0):
        model, optimizer, sparsifier = start(dtype=torch.float64)
        for step in range(20):
            backward(model, step, factor=scale)
            for parameter in model.parameters():
                parameter.grad /= scale
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
            optimizer.zero_grad()
        found.append(probabilities(sparsifier))
    torch.testing.assert_close(*found, rtol=0, atol=1e-9)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_batch_that_overflowed_and_was_skipped_leaves_nothing_behind(set_to_none):
    model, optimizer, sparsifier = start()
    learn(model, optimizer, range(12))
    backward(model, 12, factor=float("inf"))
    optimizer.zero_grad(set_to_none=set_to_none)  # a GradScaler does not call step
    learn(model, optimizer, range(12, STEPS))
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    sparsifier.finalize()


def test_a_compiled_model_draws_masks():
    results = []
    for compiles in (False, True):
        model = network()
        optimizer = sgd(model)
        called = torch.compile(model, backend="eager") if compiles else model
        sparsifier = st3.sparsify(called, optimizer, method=QUICK, **TARGET)
        learn(called, optimizer, range(STEPS))
        sparsifier.finalize()
        results.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(*results)


# ---------------------------------------------------------------- refusals


def test_a_gradient_without_a_mask_is_noticed():
    model, optimizer, _ = start()
    model.eval()
    backward(model, 0)
    with pytest.raises(
        RuntimeError, match=r"got a gradient from a forward pass without a random mask: .*call that model"
    ):
        optimizer.step()
    optimizer.zero_grad()
    model.train()
    learn(model, optimizer, [0])


def test_layers_called_one_by_one_are_refused_because_nothing_draws_their_masks():
    model, optimizer, _ = start()
    x, y = batch(0)
    for layer in model:
        x = layer(x)
    nn.functional.cross_entropy(x, y).backward()
    with pytest.raises(RuntimeError, match="masks are drawn when the model given to sparsify is called"):
        optimizer.step()


def test_masks_fixed_before_the_ramp_is_over_are_refused():
    with pytest.raises(
        ValueError, match="ProbMask fixes its masks after step 20 of 40, where the ramp asks for"
    ):
        start(st3.methods.ProbMask(finetune=0.5))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"passes": 0}, "passes must be a whole number of at least 1, got 0"),
        ({"lr": 0.0}, "lr must be above 0, got 0"),
        ({"finetune": 1.0}, "finetune is a part of the run, at least 0 and below 1, got 1"),
        ({"final": "best"}, "final must be 'most probable' or 'random', got 'best'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, complaint):
    with pytest.raises(ValueError) as error:
        st3.methods.ProbMask(**settings)
    assert str(error.value) == complaint


def test_half_precision_weights_are_refused():
    with pytest.raises(ValueError, match=r"a probability in steps too small for torch.float16"):
        start(dtype=torch.float16)


@on_ranks(2)
def test_sharded_weights_are_refused():
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(network())
    with pytest.raises(
        ValueError, match="which fully_shard does not show: train it with DistributedDataParallel"
    ):
        st3.sparsify(model, sgd(model), method=QUICK, **TARGET)
