"""FSDP2: weights sharded over processes, the thresholds of one process, and the same errors on every rank."""

import copy
import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.distributed.sharded import (
    OPTIMIZERS,
    Collectives,
    Conv1D,
    adamw,
    backward,
    batch,
    crossed_network,
    learn,
    raws,
    require_same_bits,
    rows_network,
    sgd,
    sharded,
    share,
    weights,
    whole,
    zeros_asked,
)
from tests.processes import on_ranks
from tests.tiny import cubic
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

import st3

RAMP = {"sparsity": 0.9, "total_steps": 6, "ramp": cubic(1, 5, 6)}
STEPS = range(6)
NOW = {"sparsity": 0.9, "total_steps": 3, "ramp": "constant"}


def thresholds_alone(
    network: Any, raw: dict[str, Tensor], sparsity: float, **settings: Any
) -> dict[str, float]:
    """Return the thresholds that a single process finds for these raw weights."""
    model = network(next(iter(raw.values())).dtype)
    for name, tensor in raw.items():
        model.get_parameter(name).data.copy_(tensor)
    at_once = {"sparsity": sparsity, "total_steps": 1, "ramp": "constant"}
    return st3.sparsify(model, sgd(model), **at_once, **settings).thresholds


# -------------------------------------------------------------------- the numbers of one process


@pytest.mark.parametrize(
    ("ranks", "allocation", "optimizer"),
    [
        (4, "global", "sgd"),
        (2, "erk", "adamw"),
        *((2, allocation, "sgd") for allocation in ("sigma", "uniform")),
    ],
)
@on_ranks()
def test_with_one_batch_for_all_ranks_every_bit_is_that_of_one_process(
    allocation: str, optimizer: str
) -> None:
    alone = rows_network()
    together = sharded(copy.deepcopy(alone))
    optimizers = [OPTIMIZERS[optimizer](model) for model in (alone, together)]
    sparsifiers = [
        st3.sparsify(model, its_optimizer, allocation=allocation, **RAMP)
        for model, its_optimizer in zip((alone, together), optimizers, strict=True)
    ]
    for step in STEPS:
        learn(alone, optimizers[0], batch(step))
        learn(together, optimizers[1], batch(step))
        when = f"after step {step + 1}"
        assert sparsifiers[1].thresholds == sparsifiers[0].thresholds, when
        require_same_bits(
            raws(sparsifiers[1], optimizers[1]), raws(sparsifiers[0], optimizers[0]), f"raw {when}"
        )
        require_same_bits(weights(sparsifiers[1]), weights(sparsifiers[0]), when)
    assert sparsifiers[1].at_target


@pytest.mark.parametrize(
    ("ranks", "allocation", "dtype"),
    [
        (4, "sigma", torch.float32),
        (2, "sigma", torch.float64),
        *((2, allocation, torch.float32) for allocation in ("global", "uniform", "erk")),
    ],
    ids=str,
)
@on_ranks()
def test_thresholds_are_those_of_one_process_with_the_same_raw_weights(
    allocation: str, dtype: torch.dtype
) -> None:
    model = sharded(crossed_network(dtype))
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, allocation=allocation, **RAMP)
    for step in STEPS:
        learn(model, optimizer, share(batch(step, dtype)))
        if step in (2, 5):
            raw = raws(sparsifier, optimizer)
            alone = thresholds_alone(crossed_network, raw, sparsifier.asked(step + 1), allocation=allocation)
            assert sparsifier.thresholds == alone, f"after step {step + 1}"


@pytest.mark.parametrize(("ranks", "straight_through"), [(2, False), (2, True)])
@on_ranks()
def test_training_equals_one_process_with_the_same_global_batch(straight_through: bool) -> None:
    alone = crossed_network(torch.float64)
    together = sharded(copy.deepcopy(alone))
    optimizers = [adamw(alone), adamw(together)]
    sparsifiers = [
        st3.sparsify(model, optimizer, method=st3.methods.ST3(straight_through=straight_through), **RAMP)
        for model, optimizer in zip((alone, together), optimizers, strict=True)
    ]
    for step in STEPS:
        pair = batch(step, torch.float64)
        learn(alone, optimizers[0], pair)
        learn(together, optimizers[1], share(pair))
        mine, reference = weights(sparsifiers[1]), weights(sparsifiers[0])
        torch.testing.assert_close(mine, reference, rtol=1e-6, atol=1e-9)
        for name, weight in reference.items():
            assert torch.equal(mine[name] == 0, weight == 0), f"other masks in {name} after step {step + 1}"


@on_ranks(4)
def test_zeros_and_empty_filters_are_counted_over_all_ranks() -> None:
    model = sharded(crossed_network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **RAMP)
    for step in STEPS:
        learn(model, optimizer, share(batch(step)))
    found = weights(sparsifier)
    total = sum(weight.numel() for weight in found.values())
    report = sparsifier.report()
    assert report.numel == total
    assert (
        report.zeros == sum(int((weight == 0).sum()) for weight in found.values()) == zeros_asked(total, 0.9)
    )
    for row in report.rows:
        axis = 1 if row.name in ("up.weight", "mix.weight") else 0
        filters = found[row.name].transpose(0, axis).flatten(1)
        assert row.zeros == int((filters == 0).sum()), row.name
        assert row.filters == filters.shape[0], row.name
        assert row.empty_filters == int((filters == 0).all(1).sum()), row.name


@on_ranks(4)
def test_raw_weights_are_sharded_like_their_parameter() -> None:
    model = sharded(crossed_network())
    optimizer = adamw(model)
    sparsifier = st3.sparsify(model, optimizer, **NOW)
    learn(model, optimizer, share(batch(0)))
    for layer in sparsifier.layers:
        raw = optimizer.state[layer.parameter]["st3_raw"]
        assert raw.placements == layer.parameter.placements == (Shard(0),)
        assert raw.device_mesh == layer.parameter.device_mesh
        assert raw.to_local().shape == layer.parameter.to_local().shape
        assert (
            raw.to_local().data_ptr() != layer.parameter.to_local().data_ptr() or raw.to_local().numel() == 0
        )
    held = sparsifier.layers["narrow"].parameter.to_local().shape[0]
    assert held == (0 if dist.get_rank() == 3 else 1)


@on_ranks(4)
def test_a_step_sends_counts_and_sums_of_filters_but_never_gathers() -> None:
    model = sharded(crossed_network())
    optimizer = sgd(model)
    st3.sparsify(model, optimizer, **NOW)
    for step, for_the_threshold in enumerate([3, 3]):  # warm: attaching made the first search
        backward(model, share(batch(step)))
        with Collectives() as seen:
            optimizer.step()
        for_cut_filters = 2 * 2  # mean magnitude and kept part of it, in two layers
        assert seen.names == ["allreduce_"] * (for_the_threshold + for_cut_filters)
        assert seen.largest <= 2**11 + 2
        optimizer.zero_grad()


@on_ranks(2)
def test_every_layer_keeps_its_floor_of_weights() -> None:
    settings = {"allocation": "global", "min_weights": 7}
    model = sharded(crossed_network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **NOW, **settings)
    for step in range(3):
        learn(model, optimizer, share(batch(step)))
        raw = raws(sparsifier, optimizer)
        assert sparsifier.thresholds == thresholds_alone(crossed_network, raw, 0.9, **settings)
        kept = {name: int(weight.count_nonzero()) for name, weight in weights(sparsifier).items()}
        assert min(kept.values()) >= 7, kept
    total = sum(layer.numel for layer in sparsifier.layers)
    assert sum(kept.values()) == total - zeros_asked(total, 0.9)


@on_ranks(2)
def test_layers_may_stay_dense_or_have_a_sparsity_of_their_own() -> None:
    settings = {"exclude": "conv", "layer_sparsity": {"head": 0.5}}
    model = sharded(crossed_network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **NOW, **settings)
    for step in range(3):
        learn(model, optimizer, share(batch(step)))
    report = sparsifier.report()
    assert {row.name: row.zeros for row in report.rows}["head.weight"] == zeros_asked(90, 0.5)
    common = 270 + 72 + 54
    assert report.zeros == zeros_asked(common, 0.9) + zeros_asked(90, 0.5)
    assert int((whole(model.conv.weight.detach()) == 0).sum()) == 0


@on_ranks(2)
def test_lamp_is_refused_and_nothing_is_left_behind() -> None:
    model = sharded(rows_network())
    optimizer = sgd(model)
    groups = [dict(group) for group in optimizer.param_groups]
    with pytest.raises(
        ValueError, match="allocation 'lamp' sorts every layer and cannot do that for sharded weights"
    ):
        st3.sparsify(model, optimizer, allocation="lamp", **RAMP)
    assert [dict(group) for group in optimizer.param_groups] == groups
    learn(model, optimizer, share(batch(0)))
    st3.sparsify(model, optimizer, allocation="global", **RAMP)


@on_ranks(2)
def test_tied_half_precision_weights_are_zeroed_together() -> None:
    model = sharded(rows_network(torch.bfloat16))
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **NOW)
    for step in range(3):
        learn(model, optimizer, share(batch(step, torch.bfloat16)))
        scores = torch.cat([raw.float().abs().flatten() for raw in raws(sparsifier, optimizer).values()])
        low = scores.sort().values[zeros_asked(scores.numel(), 0.9) - 1]
        assert sparsifier.report().zeros == int((scores <= low).sum())
    sparsifier.finalize()


@on_ranks(4)
def test_replicated_shards_are_counted_once() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    alone = rows_network()
    together = sharded(copy.deepcopy(alone), mesh=mesh)
    pairs = [(model, sgd(model)) for model in (alone, together)]
    sparsifiers = [st3.sparsify(model, optimizer, **RAMP) for model, optimizer in pairs]
    for step in STEPS:
        for model, optimizer in pairs:
            learn(model, optimizer, batch(step))
        assert sparsifiers[1].thresholds == sparsifiers[0].thresholds
        require_same_bits(weights(sparsifiers[1]), weights(sparsifiers[0]), f"after step {step + 1}")
    assert sparsifiers[1].report().zeros == sparsifiers[0].report().zeros


@on_ranks(2)
def test_filters_cut_by_tensor_parallelism_are_rescaled_as_a_whole() -> None:
    alone = nn.Linear(7, 5, bias=False)
    together = nn.Linear(7, 5, bias=False)
    mesh = init_device_mesh("cpu", (2,))
    together.weight = nn.Parameter(distribute_tensor(alone.weight.detach().clone(), mesh, [Shard(1)]))
    sparsifiers = []
    for model in (alone, together):
        sparsifiers.append(st3.sparsify(model, sgd(model), **NOW))
    assert sparsifiers[1].thresholds == sparsifiers[0].thresholds
    torch.testing.assert_close(whole(together.weight.detach()), alone.weight.detach())
    assert sparsifiers[1].report().rows[0].empty_filters == sparsifiers[0].report().rows[0].empty_filters


@pytest.mark.parametrize("channels", [4, 6])
@on_ranks(2)
def test_the_filters_of_a_grouped_transposed_convolution_are_right_or_refused(channels: int) -> None:
    torch.manual_seed(0)
    alone = nn.ConvTranspose2d(channels, 6, 3, groups=2)
    together = fully_shard(copy.deepcopy(alone))
    reference = st3.sparsify(alone, sgd(alone), **NOW)
    refusal = None
    try:
        sparsifier = st3.sparsify(together, sgd(together), **NOW)
    except ValueError as error:
        refusal = str(error)
    if refusal is not None:
        assert "'weight'" in refusal
        return
    torch.testing.assert_close(weights(sparsifier), weights(reference))
    assert sparsifier.report().rows[0].empty_filters == reference.report().rows[0].empty_filters


@on_ranks(2)
def test_layers_are_found_where_each_is_sharded_by_itself() -> None:
    model = crossed_network()
    plain = st3.sparsify(model, sgd(model), **RAMP)
    kinds = [(layer.name, layer.filters) for layer in plain.layers]
    plain.detach()
    for child in model.children():
        fully_shard(child)
    fully_shard(model)
    assert isinstance(model.mix, Conv1D)
    found = st3.sparsify(model, sgd(model), **RAMP).layers
    assert [(layer.name, layer.filters) for layer in found] == kinds


@on_ranks(2)
def test_a_forward_pass_in_half_precision_sees_the_zeros() -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = sharded(rows_network(), mp_policy=policy)
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **NOW)
    seen: list[int] = []
    model[5].register_forward_pre_hook(lambda module, inputs: seen.append(int((module.weight == 0).sum())))
    for step in range(3):
        zeros = {row.name: row.zeros for row in sparsifier.report().rows}["5.weight"]
        learn(model, optimizer, share(batch(step, torch.bfloat16)))
        assert seen[-1] == zeros > 0
        assert optimizer.state[sparsifier.layers["5"].parameter]["st3_raw"].dtype == torch.float32


# -------------------------------------------------------------------- gradients


def textbook(
    model: nn.Module, raw: dict[str, Tensor], threshold: float, pair: tuple[Tensor, Tensor]
) -> dict[str, Tensor]:
    """Return autograd's gradient of the raw weights through scale * soft(raw), the scale a constant."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in raw.items()}
    inputs = dict(model.named_parameters())
    for name, leaf in leaves.items():
        crossed = name in ("up.weight", "mix.weight")
        others = [d for d in range(leaf.dim()) if d != (1 if crossed else 0)]
        mean = leaf.detach().abs().mean(others, keepdim=True) + 1e-6
        kept = (leaf.detach().abs() * (leaf.detach().abs() > threshold)).mean(others, keepdim=True) + 1e-6
        scale = 1.01 / (kept / mean + 0.01)
        inputs[name] = scale * leaf.sign() * (leaf.abs() - threshold).relu()
    pictures, labels = pair
    output = torch.func.functional_call(model, inputs, (pictures,))
    nn.functional.cross_entropy(output, labels).backward()
    return {name: leaf.grad for name, leaf in leaves.items()}


@on_ranks(4)
def test_without_straight_through_the_raw_weights_get_the_textbook_gradient() -> None:
    alone = crossed_network(torch.float64)
    model = sharded(copy.deepcopy(alone))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    sparsifier = st3.sparsify(model, optimizer, method=st3.methods.ST3(straight_through=False), **NOW)
    raw = {layer.name: alone.get_parameter(layer.name).detach() for layer in sparsifier.layers}
    for step in range(3):
        pair = batch(step, torch.float64)
        expected = textbook(alone, raw, next(iter(sparsifier.thresholds.values())), pair)
        backward(model, share(pair))
        gradients = {layer.name: whole(layer.parameter.grad) for layer in sparsifier.layers}
        torch.testing.assert_close(
            gradients, expected, rtol=1e-6, atol=1e-12
        )  # mapped before clipping sees them
        optimizer.step()
        optimizer.zero_grad()
        found = raws(sparsifier, optimizer)
        moved = {name: raw[name] - 0.5 * expected[name] for name in raw}
        torch.testing.assert_close(found, moved, rtol=1e-6, atol=1e-12)
        raw = found
        for name, parameter in model.named_parameters():
            if name not in raw:
                alone.get_parameter(name).data.copy_(whole(parameter.detach()))


NOT_STRAIGHT = {
    "no-STE": st3.methods.ST3(straight_through=False),
    "soft": st3.methods.Soft(),
    "Feather": st3.methods.Feather(theta=0.5),
    "GMP": st3.methods.GMP(),
}


@pytest.mark.parametrize("method", NOT_STRAIGHT)
@pytest.mark.parametrize("reduced", ["every-time", "at-the-end"])
@on_ranks(2)
def test_clipped_sums_of_micro_batches_are_those_of_one_process(method: str, reduced: str) -> None:
    """Reduced every time, the shards of a gradient grow by one micro-batch after the other: each is mapped once."""
    alone = crossed_network(torch.float64)
    together = sharded(copy.deepcopy(alone))
    pairs = [(model, sgd(model)) for model in (alone, together)]
    sparsifiers = [st3.sparsify(m, o, method=NOT_STRAIGHT[method], **NOW) for m, o in pairs]
    for step in range(3):
        for micro in range(2):
            pair = batch(10 * step + micro, torch.float64)
            backward(alone, pair)
            together.set_requires_gradient_sync(reduced == "every-time" or micro == 1)
            backward(together, share(pair))
        norms = [whole(nn.utils.clip_grad_norm_(model.parameters(), 0.05)) for model, _ in pairs]
        assert norms[0] > 0.05  # it does clip
        torch.testing.assert_close(norms[1], norms[0])
        for _, optimizer in pairs:
            optimizer.step()
            optimizer.zero_grad()
        torch.testing.assert_close(weights(sparsifiers[1]), weights(sparsifiers[0]), rtol=1e-6, atol=1e-9)
    assert sparsifiers[1].step == 3


@pytest.mark.parametrize("set_to_none", [True, False])
@on_ranks(2)
def test_gradients_of_a_step_that_was_skipped_do_not_spare_the_next_ones(set_to_none: bool) -> None:
    models = [sharded(crossed_network(torch.float64)) for _ in range(2)]
    optimizers = [sgd(model) for model in models]
    method = st3.methods.ST3(straight_through=False)
    sparsifiers = [st3.sparsify(m, o, method=method, **NOW) for m, o in zip(models, optimizers, strict=True)]
    backward(models[0], share(batch(7, torch.float64)))
    optimizers[0].zero_grad(set_to_none=set_to_none)  # an overflow: the scaler calls no step
    for step in range(2):
        for model, optimizer in zip(models, optimizers, strict=True):
            backward(model, share(batch(8 + step, torch.float64)))
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
        torch.testing.assert_close(weights(sparsifiers[0]), weights(sparsifiers[1]), rtol=1e-9, atol=1e-12)


@on_ranks(2)
def test_several_optimizers_map_every_gradient_once() -> None:
    alone = crossed_network(torch.float64)
    together = sharded(copy.deepcopy(alone))
    method = st3.methods.ST3(straight_through=False)
    runs = []
    for model in (alone, together):
        first = [p for name, p in model.named_parameters() if name.startswith("conv")]
        rest = [p for name, p in model.named_parameters() if not name.startswith("conv")]
        optimizers = [torch.optim.SGD(first, lr=0.1), torch.optim.SGD(rest, lr=0.1)]
        runs.append((model, optimizers, st3.sparsify(model, optimizers, method=method, **NOW)))
    for step in range(3):
        pair = batch(step, torch.float64)
        for model, optimizers, _ in runs:
            backward(model, share(pair) if model is together else pair)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        torch.testing.assert_close(weights(runs[1][2]), weights(runs[0][2]), rtol=1e-6, atol=1e-9)


# -------------------------------------------------------------------- the life of a run


@on_ranks(2)
def test_a_report_lists_every_layer_and_says_that_macs_are_not_counted() -> None:
    model = sharded(crossed_network())
    sparsifier = st3.sparsify(model, sgd(model), **NOW)
    report = sparsifier.report(torch.zeros(1, 1, 7, 7))
    assert [row.name for row in report.rows] == [layer.name for layer in sparsifier.layers]
    assert report.dense_macs is None
    assert report.uncounted == tuple(f"{layer.name} (sharded: not counted)" for layer in sparsifier.layers)
    assert "conv.weight (sharded: not counted)" in str(report)
    assert report.other_parameters == 10 + 3 + 6 + 9 + 10
    assert "narrow.weight" not in repr(
        sparsifier
    )  # a repr, unlike a report, may be asked of one process alone


@on_ranks(2)
def test_finalize_counts_lets_go_and_guards_the_zeros() -> None:
    model = sharded(crossed_network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **RAMP)
    for step in STEPS:
        if step == 3:
            with pytest.raises(st3.errors.TargetMissedError, match="training stopped at step 3"):
                sparsifier.finalize()
        learn(model, optimizer, share(batch(step)))
    assert sparsifier.finalize() is sparsifier.finalize() is model
    found = torch.cat([weight.flatten() for weight in weights(sparsifier).values()])
    assert int((found == 0).sum()) == zeros_asked(found.numel(), 0.9)
    assert all("st3_raw" not in state for state in optimizer.state.values())
    backward(model, share(batch(8)))
    with pytest.raises(RuntimeError, match="this model was finalized"):
        optimizer.step()
    st3.keep_mask(model, optimizer)
    optimizer.step()
    after = torch.cat([weight.flatten() for weight in weights(sparsifier).values()])
    assert torch.equal(after == 0, found == 0)
    assert not torch.equal(after, found)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@on_ranks(2)
def test_frozen_masks_stay_as_they_are_while_active_weights_train(optimizer: str) -> None:
    model = sharded(crossed_network())
    its_optimizer = OPTIMIZERS[optimizer](model)
    sparsifier = st3.sparsify(model, its_optimizer, **NOW)
    learn(model, its_optimizer, share(batch(0)))
    sparsifier.freeze()
    before = weights(sparsifier)
    for step in (1, 2):
        learn(model, its_optimizer, share(batch(step)))
    after = weights(sparsifier)
    for layer in sparsifier.layers:
        state = its_optimizer.state[layer.parameter]
        assert "st3_raw" not in state
        assert state["st3_mask"].to_local().shape == layer.parameter.to_local().shape
        assert torch.equal(after[layer.name] == 0, before[layer.name] == 0)
    assert any(not torch.equal(after[name], before[name]) for name in after)
    sparsifier.finalize()


@on_ranks(2)
def test_detach_puts_the_raw_weights_back_on_every_rank() -> None:
    model = sharded(crossed_network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **NOW)
    learn(model, optimizer, share(batch(0)))
    raw = raws(sparsifier, optimizer)
    sparsifier.detach()
    require_same_bits(weights(sparsifier), raw, "after detach")
    learn(model, optimizer, share(batch(1)))
    assert all(bool((weight != 0).all()) for weight in weights(sparsifier).values())
    assert all("st3_raw" not in state for state in optimizer.state.values())


@on_ranks(2)
def test_an_evaluation_between_steps_changes_nothing() -> None:
    models = [sharded(crossed_network()) for _ in range(2)]
    optimizers = [sgd(model) for model in models]
    sparsifiers = [st3.sparsify(model, o, **NOW) for model, o in zip(models, optimizers, strict=True)]
    for step in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            learn(model, optimizer, share(batch(step)))
        with torch.no_grad():
            models[0](batch(9)[0])  # fully_shard keeps the whole weights of the outermost module after this
        assert st3.report(models[0]).zeros == sparsifiers[0].report().zeros
        require_same_bits(weights(sparsifiers[0]), weights(sparsifiers[1]), f"after step {step + 1}")


@on_ranks(2)
def test_a_model_that_has_just_been_evaluated_can_be_sparsified() -> None:
    model = sharded(crossed_network())
    optimizer = sgd(model)
    with torch.no_grad():
        model(batch(9)[0])
    sparsifier = st3.sparsify(model, optimizer, **NOW)
    assert len(sparsifier.layers) == 5
    assert all(hasattr(layer.parameter, "placements") for layer in sparsifier.layers)


@on_ranks(2)
def test_after_detach_even_a_model_that_has_just_been_evaluated_uses_the_raw_weights() -> None:
    model = sharded(crossed_network())
    sparsifier = st3.sparsify(model, sgd(model), **NOW)
    with torch.no_grad():
        model(batch(9)[0])
        sparsifier.detach()
        found = model(batch(9)[0])
        expected = crossed_network()(batch(9)[0])
    torch.testing.assert_close(found, expected)


@on_ranks(2)
def test_a_sharded_average_gets_thresholds_of_its_own() -> None:
    model, average = sharded(crossed_network()), sharded(crossed_network())
    sparsifier = st3.sparsify(model, sgd(model), **NOW)
    assert int((whole(average.head.weight.detach()) == 0).sum()) == 0
    total = sum(layer.numel for layer in sparsifier.layers)
    assert sparsifier.apply_to(average) == zeros_asked(total, 0.9) / total
    zeros = sum(int((whole(average.get_parameter(x.name).detach()) == 0).sum()) for x in sparsifier.layers)
    assert zeros == zeros_asked(total, 0.9)


@on_ranks(2)
def test_a_layer_that_lost_its_last_weight_is_reported_on_every_rank() -> None:
    model = rows_network()
    with torch.no_grad():
        model[2].weight.mul_(1e-6)
    model = sharded(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    st3.sparsify(model, optimizer, **{**NOW, "total_steps": 20})
    for step in range(19):
        learn(model, optimizer, share(batch(step)))
    with pytest.warns(
        st3.errors.LayerCollapseWarning, match=r"layer '2\.weight' has no active weight left at step 20"
    ):
        learn(model, optimizer, share(batch(20)))


# -------------------------------------------------------------------- what goes wrong, goes wrong on every rank


@on_ranks(2)
def test_an_optimizer_built_before_sharding_is_refused() -> None:
    model = rows_network()
    optimizer = sgd(model)
    sharded(model)
    with pytest.raises(
        ValueError, match=r"the optimizer does not own .*after the model is complete and wrapped"
    ):
        st3.sparsify(model, optimizer, **RAMP)


@pytest.mark.parametrize("settings", [RAMP, NOW], ids=["dense-so-far", "sparse-at-once"])
@on_ranks(2)
def test_sharding_after_sparsify_is_noticed_at_the_first_step(settings: dict[str, Any]) -> None:
    model = rows_network()
    optimizer = sgd(model)
    st3.sparsify(model, optimizer, **settings)
    sharded(model)
    backward(model, share(batch(0)))
    with pytest.raises(RuntimeError, match="fully_shard"):
        optimizer.step()


@on_ranks(4)
def test_a_weight_that_is_not_a_number_on_one_rank_is_reported_on_every_rank() -> None:
    model = sharded(rows_network())
    optimizer = sgd(model)
    if dist.get_rank() == 1:
        model[5].weight.data.to_local()[0, 0] = math.nan
    with pytest.raises(ValueError, match=r"layer '5\.weight' holds NaN or infinite weights before training"):
        st3.sparsify(model, optimizer, **RAMP)


@on_ranks(2)
def test_raw_weights_that_stop_being_numbers_on_one_rank_stop_every_rank() -> None:
    model = sharded(rows_network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sparsifier = st3.sparsify(model, optimizer, **{**NOW, "total_steps": 20})
    for step in range(19):
        learn(model, optimizer, share(batch(step)))
    if dist.get_rank() == 1:
        optimizer.state[sparsifier.layers["0"].parameter]["st3_raw"].to_local()[0] = math.inf
    with pytest.raises(ValueError, match=r"layer '0\.weight' holds NaN or infinite weights at step 20"):
        learn(model, optimizer, share(batch(19)))


@on_ranks(4)
def test_every_rank_notices_replaced_weights_even_one_that_holds_none() -> None:
    model = sharded(rows_network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, include="2", **NOW)
    learn(model, optimizer, share(batch(0)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
    backward(model, share(batch(1)))
    with pytest.raises(st3.errors.WeightsReplacedError, match=r"layer '2\.weight' was changed from outside"):
        optimizer.step()
    sparsifier.adopt()
    optimizer.step()
    assert sparsifier.step == 2


@on_ranks(4)
def test_a_first_step_at_learning_rate_zero_counts_on_every_rank_even_one_that_holds_nothing() -> None:
    torch.manual_seed(0)
    model = fully_shard(nn.Linear(49, 3, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sparsifier = st3.sparsify(model, optimizer, **NOW)
    model(share(batch(0))[0].flatten(1)).square().sum().backward()
    optimizer.step()
    assert sparsifier.step == 1
