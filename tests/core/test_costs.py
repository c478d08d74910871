"""What sparse training costs under fully_shard, on paper: the same bytes that processes really keep and send."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from benchmarks.wire import Wire
from tests.distributed.sharded import adamw, backward, batch, crossed_network, rows_network, sharded, share
from tests.processes import on_ranks
from torch import nn

import st3
from st3.core.costs import Costs, Traffic, sharded_costs
from st3.core.layers.shards import local

STEPS = 20  # the last of them looks for collapsed layers
FROM_THE_FIRST_STEP_ON = st3.ramps.Constant(start=1 / STEPS)
NETWORKS = {"rows": rows_network, "crossed": crossed_network}


def measure(model: nn.Module, **options: Any) -> tuple[dict[str, Wire], int]:
    """Return what is sent by sparsify, the first step, the third and one with a look; and the bytes kept.

    Not the second: with masks its threshold is 0, and the first one no hint.
    """
    optimizer = adamw(model)
    with Wire() as attach:
        sparsifier = st3.sparsify(model, optimizer, total_steps=STEPS, **options)
    steps = []
    dtype = next(model.parameters()).dtype
    for step in range(STEPS):
        backward(model, share(batch(step, dtype)))
        with Wire() as wire:
            optimizer.step()
        steps.append(wire)
        optimizer.zero_grad()
    kept = 0
    for layer in sparsifier.layers:
        ours = {k: v for k, v in optimizer.state[layer.parameter].items() if k.startswith("st3_")}
        kept += sum(local(value).nbytes for value in ours.values() if value.dim())
    return {"attach": attach, "first_cut": steps[0], "cut": steps[2], "last": steps[-1]}, kept


def require_equal(costs: Costs, found: dict[str, Wire], kept: int) -> None:
    expected = {
        "attach": costs.attach,
        "first_cut": costs.first_cut,
        "cut": costs.cut,
        "last": costs.cut + costs.look,
    }
    for event, traffic in expected.items():
        wire = found[event]
        assert {*wire.names} <= {"allreduce_"}
        assert (event, Traffic(len(wire.names), wire.payload)) == (event, traffic)
    if dist.get_rank() == 0:  # holds the most
        assert kept == costs.kept


@pytest.mark.parametrize(
    ("ranks", "network", "options"),
    [
        (2, "rows", {}),
        (4, "crossed", {"allocation": "sigma"}),
        (2, "crossed", {"allocation": "erk", "method": st3.methods.Soft()}),
        (2, "crossed", {"allocation": "uniform", "layer_sparsity": {"head": 0.5}}),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else None,
)
@on_ranks()
def test_a_method_with_thresholds_keeps_and_sends_what_the_formula_says(
    network: str, options: dict[str, Any]
) -> None:
    model = sharded(NETWORKS[network]())
    own = {"layer_sparsity": options.pop("layer_sparsity", None)}
    layers = st3.core.layers.find.find_layers(model, **own)
    costs = sharded_costs(layers, dist.get_world_size(), sparsity=0.9, **options)
    require_equal(costs, *measure(model, sparsity=0.9, ramp=FROM_THE_FIRST_STEP_ON, **options, **own))


@pytest.mark.parametrize(
    ("ranks", "method"),
    [(2, "gmp"), (2, st3.methods.SSTE()), (2, st3.methods.SRSTE())],
    ids=lambda value: type(value).__name__,
)
@on_ranks()
def test_methods_with_masks_or_groups_keep_and_send_what_the_formula_says(method: Any) -> None:
    asked = {"sparsity": 0.9, "ramp": FROM_THE_FIRST_STEP_ON} if method == "gmp" else {}
    model = sharded(crossed_network() if asked else divisible_network())
    found, kept = measure(model, method=method, **asked)
    require_equal(sharded_costs(st3.layers(model), 2, sparsity=0.9, method=method), found, kept)


def divisible_network() -> nn.Module:
    """Return a network in which all layers but the first can be divided into groups of 4 inputs."""
    layers = (nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 10))
    return nn.Sequential(*layers)


def test_a_model_that_nobody_could_hold_is_counted_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = nn.ModuleList(nn.Linear(8192, 28672, bias=False) for _ in range(80))
    layers = st3.layers(model)
    sizes = {ranks: sharded_costs(layers, ranks) for ranks in (1, 3, 64)}
    assert sizes[1].kept == 4 * sum(layer.numel for layer in layers)
    assert sizes[1].attach == sizes[1].first_cut == sizes[1].cut == sizes[1].look == Traffic()
    assert sizes[3].weights == 80 * 9558 * 8192  # 28,672 rows: 9,558 on the first two, 9,556 on the third
    assert sizes[64].cut == sizes[3].cut == Traffic(3, 8 * 2049 + 8 * 1025 + 4)
    assert sharded_costs(layers, 64, allocation="erk").cut == sizes[64].cut * 80
    assert sharded_costs(layers, 64, sparsity=0.0).cut == Traffic()


def test_half_precision_keeps_two_bytes_of_raw_weight_and_chooses_masks_from_float64_scores() -> None:
    layers = st3.layers(nn.Linear(64, 64, bias=False, dtype=torch.bfloat16))
    raw, mask = sharded_costs(layers, 2), sharded_costs(layers, 2, method="gmp")
    assert (raw.kept, mask.kept) == (2 * 64 * 32, 64 * 32)
    assert mask.cut == mask.first_cut == Traffic(6, 8 * (2048 + 4 * 8192 + 5) + 8)
    assert raw.cut == Traffic(3, 24596)


def test_the_share_of_the_look_in_a_step_is_rounded_up() -> None:
    found = sharded_costs(st3.layers(nn.Linear(8, 8)), 2)
    assert (found.look, found.look_every) == (Traffic(2, 24), 20)
    assert found.step == found.cut + Traffic(1, 2)


@pytest.mark.parametrize(
    ("ranks", "options", "error"),
    [
        (0, {}, "ranks must be a whole number of at least 1, got 0"),
        (
            2,
            {"method": "probmask"},
            "what ProbMask sends under fully_shard is not known: ask for a method with",
        ),
        (2, {"method": "rigl"}, "RigL exchanges weights within a layer, which must be whole for that"),
        (
            2,
            {"allocation": "lamp"},
            "allocation 'lamp' sorts every layer and cannot do that for sharded weights",
        ),
    ],
)
def test_what_cannot_run_under_fully_shard_has_no_costs(
    ranks: int, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(ValueError, match=f"^{error}"):
        sharded_costs(st3.layers(nn.Linear(8, 8)), ranks, **options)
