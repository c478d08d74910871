"""Checkpoints of sharded weights through torch.distributed.checkpoint: sparse, complete, for any number of ranks."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from tests.distributed.sharded import (
    OPTIMIZERS,
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
    zeros_asked,
)
from tests.processes import on_ranks
from tests.tiny import cubic
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

import st3

RAMP = {"sparsity": 0.9, "total_steps": 8, "ramp": cubic(1, 6, 8)}
METHODS = {"ST3": st3.methods.ST3(), "no-STE": st3.methods.ST3(straight_through=False)}


def state_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    return {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer)}


def load(model: nn.Module, optimizer: Optimizer, folder: Path, **options: Any) -> None:
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder, **options)
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])


def train(model: nn.Module, optimizer: Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        learn(model, optimizer, share(batch(step)))


@pytest.mark.parametrize(("ranks", "method", "optimizer"), [(2, "ST3", "adamw"), (2, "no-STE", "sgd")])
@on_ranks()
def test_a_freshly_attached_run_resumes_bit_for_bit(method: str, optimizer: str, tmp_path: Path) -> None:
    model = sharded(crossed_network())
    its_optimizer = OPTIMIZERS[optimizer](model)
    sparsifier = st3.sparsify(model, its_optimizer, method=METHODS[method], **RAMP)
    train(model, its_optimizer, 0, 4)
    dcp.save(state_of(model, its_optimizer), checkpoint_id=tmp_path)

    fresh = sharded(crossed_network())
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.mul_(1.5)
    fresh_optimizer = OPTIMIZERS[optimizer](fresh)
    fresh_sparsifier = st3.sparsify(fresh, fresh_optimizer, method=METHODS[method], **RAMP)
    load(fresh, fresh_optimizer, tmp_path)
    assert fresh_sparsifier.step == 4
    assert fresh_sparsifier.thresholds == sparsifier.thresholds
    require_same_bits(weights(fresh_sparsifier), weights(sparsifier), "after loading")
    for step in range(4, 7):
        train(model, its_optimizer, step, step + 1)
        train(fresh, fresh_optimizer, step, step + 1)
        require_same_bits(weights(fresh_sparsifier), weights(sparsifier), f"after step {step + 1}")
        require_same_bits(
            raws(fresh_sparsifier, fresh_optimizer), raws(sparsifier, its_optimizer), f"raw, {step + 1}"
        )
    fresh_sparsifier.finalize()


@pytest.mark.parametrize(("optimizer", "ramp"), [("sgd", "constant"), ("adamw", "cubic")])
@on_ranks(2)
def test_the_empty_step_that_creates_an_optimizers_state_is_not_counted(optimizer: str, ramp: str) -> None:
    model = sharded(crossed_network())
    its_optimizer = OPTIMIZERS[optimizer](model)
    sparsifier = st3.sparsify(model, its_optimizer, **{**RAMP, "ramp": ramp})
    before = weights(sparsifier)
    state = get_optimizer_state_dict(model, its_optimizer)
    assert sparsifier.step == 0
    assert {group["st3_step"] for group in state["param_groups"]} == {0}
    assert all("st3_raw" in state["state"][layer.name] for layer in sparsifier.layers)
    require_same_bits(weights(sparsifier), before, "after the empty step")
    train(model, its_optimizer, 0, 1)
    assert sparsifier.step == 1


@on_ranks(4)
def test_the_saved_model_is_sparse_and_the_saved_optimizer_holds_the_raw_weights(tmp_path: Path) -> None:
    model = sharded(crossed_network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **RAMP)
    train(model, optimizer, 0, 8)
    dcp.save(state_of(model, optimizer), checkpoint_id=tmp_path / "sharded")
    expected = weights(sparsifier), raws(sparsifier, optimizer)
    if dist.get_rank() != 0:
        return
    dcp_to_torch_save(tmp_path / "sharded", tmp_path / "whole.pt")
    saved = torch.load(tmp_path / "whole.pt")
    names = [layer.name for layer in sparsifier.layers]
    require_same_bits({name: saved["model"][name] for name in names}, expected[0], "in the file")
    raw = {name: saved["optimizer"]["state"][name]["st3_raw"] for name in names}
    require_same_bits(raw, expected[1], "in the file (raw)")
    zeros = sum(int((saved["model"][name] == 0).sum()) for name in names)
    assert zeros == zeros_asked(sum(tensor.numel() for tensor in raw.values()), 0.9)
    plain = crossed_network()
    plain.load_state_dict(saved["model"])
    assert st3.report(plain).zeros == zeros


@on_ranks(4)
def test_four_ranks_save_and_two_ranks_or_one_process_go_on(tmp_path: Path) -> None:
    model = sharded(rows_network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **RAMP)
    for step in range(4):
        learn(model, optimizer, batch(step))  # one batch for all: then the number of ranks changes no bit
    dcp.save(state_of(model, optimizer), checkpoint_id=tmp_path)

    mesh = DeviceMesh("cpu", [0, 1])
    runs = [(model, optimizer, sparsifier)]
    if dist.get_rank() in (0, 1):
        pair = sharded(rows_network(), mesh=mesh)
        its_optimizer = sgd(pair)
        runs.append((pair, its_optimizer, st3.sparsify(pair, its_optimizer, **RAMP)))
        load(pair, its_optimizer, tmp_path, process_group=mesh.get_group())
    if dist.get_rank() == 0:
        alone = rows_network()
        its_optimizer = sgd(alone)
        runs.append((alone, its_optimizer, st3.sparsify(alone, its_optimizer, **RAMP)))
        with pytest.warns(UserWarning, match="load in a single process"):
            load(alone, its_optimizer, tmp_path, no_dist=True)
    for step in range(4, 8):
        expected = None
        for its_model, its_optimizer, its_sparsifier in runs:
            assert its_sparsifier.step == step
            learn(its_model, its_optimizer, batch(step))
            found = weights(its_sparsifier), raws(its_sparsifier, its_optimizer), its_sparsifier.thresholds
            expected = found if expected is None else expected
            when = f"after step {step + 1} of run {len(runs)}"
            require_same_bits(found[0], expected[0], when)
            require_same_bits(found[1], expected[1], f"raw {when}")
            assert found[2] == expected[2], when


@on_ranks(2)
def test_a_frozen_run_resumes_frozen(tmp_path: Path) -> None:
    runs = []
    for _ in range(2):
        model = sharded(crossed_network())
        optimizer = sgd(model)
        runs.append((model, optimizer, st3.sparsify(model, optimizer, **RAMP)))
    (model, optimizer, sparsifier), (fresh, fresh_optimizer, fresh_sparsifier) = runs
    train(model, optimizer, 0, 6)
    sparsifier.freeze()
    train(model, optimizer, 6, 7)
    dcp.save(state_of(model, optimizer), checkpoint_id=tmp_path)
    fresh_sparsifier.freeze()  # the loader fills what it finds: masks only into masks
    load(fresh, fresh_optimizer, tmp_path)
    for its_model, its_optimizer, its_sparsifier in runs:
        train(its_model, its_optimizer, 7, 8)
        assert its_sparsifier.is_frozen
    require_same_bits(weights(fresh_sparsifier), weights(sparsifier), "after resuming")
    assert fresh_sparsifier.step == 8


@on_ranks(2)
def test_whole_state_dicts_gathered_by_torch_resume(tmp_path: Path) -> None:
    options = StateDictOptions(full_state_dict=True)
    model = sharded(crossed_network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **RAMP)
    train(model, optimizer, 0, 4)
    whole_model = get_model_state_dict(model, options=options)
    whole_optimizer = get_optimizer_state_dict(model, optimizer, options=options)

    fresh = sharded(crossed_network())
    fresh_optimizer = sgd(fresh)
    fresh_sparsifier = st3.sparsify(fresh, fresh_optimizer, **RAMP)
    set_model_state_dict(fresh, whole_model, options=options)
    set_optimizer_state_dict(fresh, fresh_optimizer, whole_optimizer, options=options)
    train(model, optimizer, 4, 6)
    train(fresh, fresh_optimizer, 4, 6)
    assert fresh_sparsifier.step == 6
    require_same_bits(weights(fresh_sparsifier), weights(sparsifier), "after resuming")


@on_ranks(2)
def test_weights_loaded_without_their_optimizer_are_noticed() -> None:
    model = sharded(crossed_network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, **RAMP)
    train(model, optimizer, 0, 3)
    before = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    train(model, optimizer, 3, 6)
    set_model_state_dict(model, before, options=StateDictOptions(full_state_dict=True))
    with pytest.raises(st3.errors.WeightsReplacedError, match="load the optimizer's state as well"):
        train(model, optimizer, 6, 7)
    assert sparsifier.step == 6


@on_ranks(2)
def test_a_checkpoint_of_another_method_of_training_is_refused(tmp_path: Path) -> None:
    model = sharded(crossed_network())
    optimizer = sgd(model)
    train(model, optimizer, 0, 2)  # without st3
    state = state_of(model, optimizer)
    fresh = sharded(crossed_network())
    fresh_optimizer = sgd(fresh)
    sparsifier = st3.sparsify(fresh, fresh_optimizer, **RAMP)
    train(fresh, fresh_optimizer, 0, 2)
    before = weights(sparsifier)
    with pytest.raises(st3.errors.CheckpointError, match="this optimizer state holds no raw weights"):
        set_optimizer_state_dict(fresh, fresh_optimizer, state["optimizer"])
    require_same_bits(weights(sparsifier), before, "after a refused load")
