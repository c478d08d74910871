"""Blocks: which weights are zeroed together, what becomes of them, and what is counted."""

import copy
import math
from dataclasses import dataclass

import pytest
import torch
from tests.distributed.sharded import Conv1D
from tests.processes import on_ranks
from tests.tiny import TinyNet, assert_same, sgd, sparsify, train
from torch import distributed as dist
from torch import nn
from torch.func import functional_call

import st3
from st3.core.layers.find import find_layers
from st3.core.layers.groups import divide_into_blocks

pytestmark = pytest.mark.filterwarnings("ignore::st3.errors.LayerCollapseWarning")

# Two outputs of eight inputs: the blocks have the root mean squares 1 and 5, 2 and 3.
WEIGHT = torch.tensor([[1.0, 1, -1, 1, 1, -7, 5, 5], [2.0, -2, 2, 2, 3, 3, 3, -3]])
PLAIN = st3.methods.ST3(rescale=False)


def linear(weight=WEIGHT):
    model = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    model.weight.data.copy_(weight)
    return model


def attach(model, **choice):
    """Sparsify at once; with a sparsity of 0.4, two of the four blocks of WEIGHT go and the threshold is 2.5."""
    settings = {"sparsity": 0.4, "total_steps": 1, "ramp": "constant", "block": 4, **choice}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return optimizer, st3.sparsify(model, optimizer, **settings)


def whole_blocks(weight, inputs=1, block=4):
    """Whether every block of a weight is zeroed as a whole, or not at all."""
    active = weight.detach().movedim(inputs, -1).unflatten(-1, (-1, block)) != 0
    return torch.equal(active.any(-1), active.all(-1))


# ---------------------------------------------------------------- small numbers by hand


def test_soft_thresholding_shrinks_the_root_mean_square_of_a_block():
    model = linear()
    _, sparsifier = attach(model, method=PLAIN)
    assert sparsifier.threshold == 2.5  # half-way between the blocks of 2 and 3
    expected = [[0, 0, 0, 0, 0.5, -3.5, 2.5, 2.5], [0, 0, 0, 0, 0.5, 0.5, 0.5, -0.5]]  # 5 -> 2.5, 3 -> 0.5
    torch.testing.assert_close(model.weight.data, torch.tensor(expected))


def test_hard_thresholding_leaves_surviving_blocks_as_they_are_to_the_last_bit():
    torch.manual_seed(0)
    model = linear(torch.randn(8, 32))
    raw = model.weight.detach().clone()
    attach(model, method="dnw", sparsity=0.7)
    assert torch.equal(model.weight.detach()[model.weight != 0], raw[model.weight != 0])


def test_the_rescale_of_a_filter_comes_from_the_magnitudes_of_its_blocks():
    model = linear()
    attach(model, method=st3.methods.ST3(exact_rescale=True))
    # Mean magnitudes 3 and 2.5, kept 2.5 and 1.5: factors 1.2 and 5/3.
    expected = [[0, 0, 0, 0, 0.6, -4.2, 3, 3], [0, 0, 0, 0, 5 / 6, 5 / 6, 5 / 6, -5 / 6]]
    torch.testing.assert_close(model.weight.data, torch.tensor(expected))


def test_the_straight_through_gradient_reaches_zeroed_blocks_unchanged():
    model = linear()
    attach(model)
    grad = torch.arange(16.0).view(2, 8)
    (model.weight * grad).sum().backward()
    assert torch.equal(model.weight.grad, grad)


def test_without_straight_through_the_gradient_is_the_derivative_of_the_block():
    """Along the block (0.2, -1.4, 1, 1) it passes whole; across, it shrinks as the block does, to a half."""
    model = linear()
    attach(model, method="soft")
    (model.weight[0, 4] + 7 * model.weight[0, 0]).backward()
    expected = torch.zeros(2, 8)
    expected[0, 4:] = torch.tensor([0.505, -0.035, 0.025, 0.025])
    torch.testing.assert_close(model.weight.grad, expected)


def test_gmp_zeroes_the_blocks_with_the_smallest_root_mean_square():
    model = linear()
    attach(model, method="gmp")
    assert torch.equal(model.weight.data, WEIGHT * torch.tensor([0.0, 1.0]).repeat_interleave(4))


def test_a_block_of_zeros_makes_no_nan():
    weight = WEIGHT.clone()
    weight[0, :4] = 0
    for method in ("st3", "soft", "feather"):
        model = linear(weight)
        attach(model, method=method)
        model.weight.square().sum().backward()
        assert torch.isfinite(model.weight).all()
        assert torch.isfinite(model.weight.grad).all()


def test_zeros_have_no_sign():
    model = linear()
    attach(model)
    assert not torch.signbit(model.weight[model.weight == 0]).any()


def test_the_blocks_of_a_convolution_are_neighbouring_input_channels_of_one_place():
    model = nn.Conv2d(8, 1, 2, bias=False)
    model.weight.data.fill_(1.0)
    model.weight.data[0, 4:, 1, 0] = 3.0
    model.weight.data[0, 0, 0, 0] = 4.0  # with three ones a root mean square of 2.2
    attach(model, method="dnw", sparsity=0.7)  # six of eight blocks
    active = (model.weight != 0).nonzero().tolist()
    assert active == [[0, c, 0, 0] for c in range(4)] + [[0, c, 1, 0] for c in range(4, 8)]


# ---------------------------------------------------------------- layers


def test_layers_whose_inputs_do_not_divide_stay_dense_and_the_report_says_why():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Bilinear(4, 4, 2), nn.Linear(8, 4)
    )
    _, sparsifier = attach(model)
    assert [layer.name for layer in sparsifier.layers] == ["3.weight"]
    reasons = dict(sparsifier.report().skipped)
    assert reasons["0.weight"] == "3 input channels cannot be divided into blocks of 4"
    assert reasons["1.weight"] == "1 input channel cannot be divided into blocks of 4"
    assert reasons["2.weight"] == "Bilinear has no single axis of inputs for blocks"


def test_a_model_without_a_layer_that_divides_is_refused():
    with pytest.raises(LookupError) as error:
        attach(nn.Conv2d(3, 8, 3))
    reason = "weight: 3 input channels cannot be divided into blocks of 4"
    assert str(error.value) == f"no layer can be divided into blocks of 4 ({reason})"


def test_a_sparsity_of_its_own_for_a_layer_without_blocks_is_refused():
    model = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 8))
    with pytest.raises(
        ValueError, match=r"names '0.weight', which stays dense with block=4: 3 input channels"
    ):
        attach(model, layer_sparsity={"0": 0.5})


@pytest.mark.parametrize(
    "layer",
    [nn.ConvTranspose2d(8, 4, 3), nn.ConvTranspose2d(16, 4, 3, groups=2), Conv1D(6, 8), nn.Conv1d(8, 4, 2)],
    ids=lambda layer: type(layer).__name__,
)
def test_blocks_lie_along_the_inputs_wherever_a_layer_keeps_them(layer):
    for method in ("st3", "soft", "gmp"):
        model = nn.Sequential(copy.deepcopy(layer))
        _, sparsifier = attach(model, method=method, sparsity=0.6)
        assert 0 < sparsifier.report().sparsity < 1
        assert whole_blocks(model[0].weight, sparsifier.layers[0].inputs)
        model[0].weight.sum().backward()
        assert model[0].weight.grad.shape == model[0].weight.shape


def test_a_large_layer_is_written_piece_by_piece_as_at_once(monkeypatch):
    torch.manual_seed(0)
    weight = torch.randn(64, 128)
    whole, pieces = linear(weight), linear(weight)
    attach(whole, sparsity=0.9)
    monkeypatch.setattr("st3.core.families.raw.PIECE", 256)
    attach(pieces, sparsity=0.9)
    assert torch.equal(whole.weight, pieces.weight)


def test_one_value_per_block_is_averaged_over_its_filter():
    (layer,) = divide_into_blocks(find_layers(nn.Linear(8, 2)), 4)
    assert layer.filter_means(torch.tensor([[1.0, 5.0], [2.0, 3.0]])).tolist() == [[3.0], [2.5]]


# ---------------------------------------------------------------- counts


@pytest.mark.parametrize(
    ("sparsity", "zeros"), [(0.0, 0), (0.01, 4), (0.25, 4), (0.3, 8), (0.4, 8), (0.95, 16)]
)
def test_the_target_is_rounded_up_to_whole_blocks(sparsity, zeros):
    model = linear()
    optimizer, sparsifier = attach(model, sparsity=sparsity)
    assert sparsifier.report().zeros == zeros
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    sparsifier.finalize()


def test_a_floor_is_rounded_up_to_whole_blocks():
    model = nn.Sequential(linear(0.01 * WEIGHT), linear(WEIGHT[:, :2].repeat(1, 4)))
    _, sparsifier = attach(model, sparsity=0.5, min_weights=5)
    assert [row.numel - row.zeros for row in sparsifier.report().rows] == [8, 8]


def test_a_floor_beyond_the_target_is_refused():
    model = nn.Sequential(linear(), linear(WEIGHT[:, :2].repeat(1, 4)))
    with pytest.raises(
        ValueError, match="at least 13 weights per layer are to stay, 32 in all, but only 16 of 32"
    ):
        attach(model, sparsity=0.5, min_weights=13)


def test_a_layer_with_a_sparsity_of_its_own_has_it_in_whole_blocks():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 8))
    _, sparsifier = attach(model, sparsity=0.75, layer_sparsity={"1": 0.3})
    rows = sparsifier.report().rows
    assert [row.zeros for row in rows] == [96, 20]  # 19 of 64 would do
    assert [row.target for row in rows] == [None, 0.3]


@pytest.mark.parametrize("allocation", ["uniform", "erk", "lamp", "sigma"])
def test_allocations_share_zeros_in_whole_blocks(allocation):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 16), nn.Linear(16, 8))
    _, sparsifier = attach(model, sparsity=0.8, allocation=allocation)
    found = sparsifier.report()
    asked = math.floor((found.numel - 1) * 0.8) + 1
    assert found.zeros == math.ceil(asked / 4) * 4
    assert all(whole_blocks(layer.parameter) for layer in sparsifier.layers)


def test_lamp_keeps_a_block_in_every_layer_or_says_that_it_cannot():
    model = nn.Sequential(linear(), linear(WEIGHT[:, :2].repeat(1, 4)))
    with pytest.raises(
        ValueError, match="keeps at least one block in each of the 2 layers, but only 1 blocks may"
    ):
        attach(model, sparsity=0.85, allocation="lamp")


def test_a_surviving_block_may_hold_a_zero_of_its_own():
    weight = WEIGHT.clone()
    weight[0, 5] = 0
    model = linear(weight)
    _, sparsifier = attach(model)
    assert model.weight[0, 4:].tolist().count(0.0) == 1
    assert sparsifier.report().zeros == 9
    assert sparsifier.at_target


# ---------------------------------------------------------------- a whole run

TEXTBOOK = [
    st3.methods.ST3(),
    st3.methods.ST3(exact_rescale=True),
    st3.methods.ST3(soft=False),
    PLAIN,
    st3.methods.ST3(straight_through=False),
    st3.methods.ST3(soft=False, straight_through=False),
    st3.methods.ST3(rescale=False, straight_through=False),
]


def deep():
    torch.manual_seed(0)
    layers = (nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 2), nn.ReLU())
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 3)).double()


def loss(model, weights, step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 4, 5, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (8,), generator=generator)
    return nn.functional.cross_entropy(functional_call(model, weights, (x,)), y)


def magnitudes(raw):
    """Root mean squares: output, height, width, block."""
    return raw.movedim(1, -1).unflatten(-1, (-1, 4)).square().mean(-1).sqrt()


def textbook(method, raw, threshold):
    """ST-3 on the root mean square of every block; autograd derives the rest. The scale is a constant."""
    norm = magnitudes(raw)
    shrunk = torch.relu(norm - threshold) if method.soft else norm * (norm > threshold)
    if method.rescale:
        filters = norm.detach().flatten(1)
        total, kept = filters.mean(1), (filters * (filters > threshold)).mean(1)
        scale = 1.01 / ((kept + 1e-6) / (total + 1e-6) + 0.01)
        if method.exact_rescale:
            scale = torch.where(kept > 0, total / torch.where(kept > 0, kept, 1.0), 1.0)
        shrunk = shrunk * scale.reshape(-1, *[1] * (norm.dim() - 1))
    blocks = raw.movedim(1, -1).unflatten(-1, (-1, 4)) * (shrunk / norm).unsqueeze(-1)
    weight = blocks.flatten(-2).movedim(-1, 1)
    return raw + (weight - raw).detach() if method.straight_through else weight


@pytest.mark.parametrize("method", TEXTBOOK, ids=str)
def test_a_run_agrees_with_autograd_through_the_textbook_form(method):
    model, reference, steps = deep(), deep(), 40
    optimizer, other = (
        torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
        for each in (model, reference)
    )
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=steps, method=method, block=4)
    names = [layer.name for layer in sparsifier.layers]
    threshold = None
    for step in range(steps):
        loss(model, {}, step).backward()
        optimizer.step()
        optimizer.zero_grad()

        raw = dict(reference.named_parameters())
        sparse = {} if threshold is None else {name: textbook(method, raw[name], threshold) for name in names}
        loss(reference, raw | sparse, step).backward()
        other.step()
        other.zero_grad()
        scores = torch.cat([magnitudes(raw[name].detach()).flatten() for name in names]).sort().values
        if asked := sparsifier.asked(step + 1):
            place = (4 * scores.numel() - 1) * asked / 4  # of the quantile of weights, in blocks
            low, high = scores[math.floor(place)], scores[math.floor(place) + 1]
            threshold = float(low + (high - low) * (place - math.floor(place)))
    for layer in sparsifier.layers:
        raw = dict(reference.named_parameters())[layer.name]
        torch.testing.assert_close(optimizer.state[layer.parameter]["st3_raw"], raw.data, rtol=0, atol=1e-9)
        expected = textbook(method, raw, threshold).detach()
        torch.testing.assert_close(layer.parameter.detach(), expected, rtol=0, atol=1e-9)


def test_a_block_of_one_is_the_same_run_bit_for_bit():
    runs = []
    for choice in ({}, {"block": 1}):
        model = TinyNet()
        optimizer = sgd(model.parameters())
        sparsify(model, optimizer, **choice)
        train(model, optimizer, 12)
        runs.append({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert_same(*runs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("method", ["st3", "soft", "gmp"])
@pytest.mark.filterwarnings("ignore::st3.errors.PrecisionWarning")
def test_half_precision_weights_are_zeroed_in_blocks(method, dtype):
    torch.manual_seed(0)
    model = nn.Linear(64, 32).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=4, method=method, block=4)
    for step in range(4):
        model.weight.grad = torch.randn(32, 64, generator=torch.Generator().manual_seed(step)).to(dtype)
        optimizer.step()
        assert whole_blocks(model.weight)
    assert 1640 <= sparsifier.report().zeros <= 1644  # 1,638 asked for
    assert sparsifier._conductor.family.holds(sparsifier.layers[0])
    sparsifier.finalize()


def test_frozen_masks_keep_their_blocks_and_so_does_keep_mask():
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer, block=4)
    train(model, optimizer, 8)
    sparsifier.freeze()
    frozen = model.deep.weight != 0
    train(model, optimizer, range(8, 12))
    sparsifier.finalize()
    optimizer = sgd(model.parameters())
    st3.keep_mask(model, optimizer)
    train(model, optimizer, 2)
    assert torch.equal(model.deep.weight != 0, frozen)
    assert whole_blocks(model.deep.weight)


@pytest.mark.parametrize("method", ["st3", "gmp"])
def test_an_average_of_past_weights_gets_whole_blocks(method):
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer, block=4, method=method)
    average = torch.optim.swa_utils.AveragedModel(model)
    for step in range(12):
        train(model, optimizer, range(step, step + 1))
        average.update_parameters(model)
    before = average.module.deep.weight.detach().clone()
    assert sparsifier.apply_to(average) >= 0.8
    found = average.module.deep.weight
    assert whole_blocks(found)
    assert torch.equal(found[found != 0], before[found != 0])


def test_the_sparsifier_shows_its_blocks():
    _, sparsifier = attach(linear(), method="dnw")
    assert sparsifier.block == 4
    assert repr(sparsifier).startswith(
        "Sparsifier(DNW(), Uniform(), Constant(start=0.0), blocks of 4, step 0)"
    )
    _, plain = attach(linear(), method="dnw", block=1)
    assert "blocks" not in repr(plain)


def test_a_finalized_sparsifier_can_be_copied_with_its_blocks():
    optimizer, sparsifier = attach(linear())
    sparsifier.model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    sparsifier.finalize()
    assert copy.deepcopy(sparsifier).block == 4


# ---------------------------------------------------------------- refused

TAKEN_BY = "'acdc' or 'dnw' or 'feather' or 'gmp' or 'soft' or 'st3'"


@pytest.mark.parametrize("name", ["rigl", "set", "static", "granet", "topk", "probmask"])
def test_methods_that_choose_single_weights_are_refused_and_others_named(name):
    with pytest.raises(ValueError) as error:
        attach(linear(), method=name, ramp=None)
    kind = type(st3.methods.METHODS[name]()).__name__
    assert (
        f"{kind} zeroes single weights, so block=4 means nothing to it: leave block out, or take {TAKEN_BY}"
        in str(error.value)
    )


def test_n_m_groups_and_soft_masks_are_refused():
    with pytest.raises(ValueError, match="SSTE zeroes single weights, so block=4 means nothing to it"):
        attach(linear(), method="s_ste", sparsity=None)
    with pytest.raises(ValueError, match="PDP has soft masks for single weights, so block=4 means nothing"):
        attach(linear(), method="pdp", ramp=None)
    with pytest.raises(ValueError, match=r"STR learns its thresholds.*: leave block out"):
        attach(linear(), method="str", sparsity=None, ramp=None)


def test_feather_takes_blocks_as_long_as_its_gradients_are_straight_through():
    with pytest.raises(
        ValueError, match=r"Feather damps the gradients of single weights \(theta=1.0 would not\), so block=4"
    ) as error:
        attach(linear(), method="feather", sparsity=0.97)
    assert "'feather'" not in str(error.value)
    attach(linear(), method="feather", sparsity=0.95)
    attach(linear(), method=st3.methods.Feather(theta=1.0), sparsity=0.97)


@dataclass(frozen=True)
class Damped(st3.methods.ThresholdMethod):
    """A method of the user's own whose gradient is neither straight-through nor a derivative."""

    def sparse_weight(self, view):
        torch.mul(view.raw, view.raw.abs() > view.threshold, out=view.sparse)

    def is_straight_through(self, sparsity):
        return False

    def raw_gradient(self, grad, view):
        return torch.where(view.active, grad, grad / 2)


def test_gradients_of_an_unknown_kind_are_refused():
    with pytest.raises(
        ValueError, match="Damped has gradients for single weights only, so block=4 means nothing"
    ):
        attach(linear(), method=Damped())


@pytest.mark.parametrize("block", [0, -4, 2.0, True, "4", None])
def test_a_block_is_a_whole_number_of_weights(block):
    with pytest.raises(
        (ValueError, TypeError), match=r"^block (must be a whole number of at least 1|is missing)"
    ):
        attach(linear(), block=block)


def test_faults_of_blocks_are_told_with_all_others():
    with pytest.raises(ValueError) as error:
        attach(nn.Linear(3, 2), sparsity=90, block=4)
    assert "sparsity must be at least 0 and below 1, got 90" in str(error.value)
    assert "no layer can be divided into blocks of 4" in str(error.value)


# ---------------------------------------------------------------- several processes


@on_ranks(2)
def test_two_processes_are_one():
    def learn(model, rank=0, ranks=1):
        optimizer = sgd(model.parameters())
        sparsifier = sparsify(model, optimizer, block=4)
        for step in range(12):
            generator = torch.Generator().manual_seed(step)
            x, y = torch.randn(8, 2, 4, 4, generator=generator), torch.arange(8)
            mine = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
            nn.functional.cross_entropy(model(x[mine])[:, :10], y[mine]).backward()
            optimizer.step()
            optimizer.zero_grad()
        return sparsifier

    def network():
        net = TinyNet()
        net.norm = nn.Identity()  # a batch norm would see half a batch
        return net

    alone, wrapped = network(), nn.parallel.DistributedDataParallel(network())
    learn(alone)
    sparsifier = learn(wrapped, dist.get_rank(), 2)
    for a, b in zip(wrapped.module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
        other = a.detach().clone()
        dist.broadcast(other, src=0)
        assert torch.equal(other, a)
    assert whole_blocks(wrapped.module.deep.weight)
    sparsifier.finalize()


@on_ranks(2)
def test_sharded_weights_are_zeroed_in_blocks_as_whole_ones_are():
    from torch.distributed.fsdp import fully_shard

    for method in ("st3", "soft", "gmp"):
        models = []
        for shard in (lambda model: model, fully_shard):
            torch.manual_seed(0)
            # Three filters on two processes, and one: the second holds nothing of it.
            model = shard(
                nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3), nn.ReLU(), nn.Linear(3, 1))
            )
            optimizer = sgd(model.parameters())
            sparsifier = sparsify(model, optimizer, block=4, method=method)
            for step in range(12):
                x = torch.randn(8, 8, generator=torch.Generator().manual_seed(step))
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            sparsifier.finalize()
            models.append(model)
        for a, b in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(b.full_tensor(), a, rtol=1e-3, atol=1e-4)
        assert whole_blocks(models[1][0].weight.full_tensor())


@on_ranks(2)
def test_inputs_that_sharding_cuts_apart_are_refused():
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(nn.Sequential(nn.Linear(8, 8), Conv1D(4, 8)))
    with pytest.raises(
        ValueError, match=r"cuts the inputs of layer '1.weight' \(Conv1D\) apart, and with them its blocks"
    ):
        attach(model)
