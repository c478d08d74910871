"""DistributedDataParallel: every rank holds the same raw and sparse weights, those of one process."""

import copy
import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.processes import on_ranks
from tests.tiny import cubic
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

import st3

BATCH = 8  # pictures per rank and step
STEPS = 12
SETTINGS = {"sparsity": 0.9, "total_steps": STEPS, "ramp": cubic(1, 9, STEPS)}
METHODS = pytest.mark.parametrize(
    "method", [st3.methods.ST3(), st3.methods.ST3(straight_through=False)], ids=["ST3", "no-STE"]
)


def network(dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = (
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, 10),
    )
    return nn.Sequential(*layers).to(dtype)


def batch(step: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return the pictures of all ranks at this step."""
    generator = torch.Generator().manual_seed(step)
    count = BATCH * dist.get_world_size()
    pictures = torch.randn(count, 1, 7, 7, generator=generator, dtype=dtype)
    return pictures, torch.randint(10, (count,), generator=generator)


def share(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return this rank's part of a batch."""
    pictures, labels = (whole.chunk(dist.get_world_size())[dist.get_rank()] for whole in pair)
    return pictures, labels


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, pair: tuple[Tensor, Tensor]) -> None:
    pictures, labels = pair
    nn.functional.cross_entropy(model(pictures), labels).backward()
    optimizer.step()
    optimizer.zero_grad()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def raws(sparsifier: st3.Sparsifier, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {layer.name: optimizer.state[layer.parameter]["st3_raw"] for layer in sparsifier.layers}


def require_equal_on_all_ranks(what: Any, where: str) -> None:
    flat = hashlib.sha256()
    for name, value in what.items():
        exact = (
            value.detach().contiguous().numpy().tobytes()
            if isinstance(value, Tensor)
            else repr(value).encode()
        )
        flat.update(name.encode() + exact)
    digests: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, flat.hexdigest())
    assert len(set(digests)) == 1, f"the ranks differ: {where}"


@METHODS
@on_ranks(2)
def test_masks_thresholds_and_raw_weights_are_identical_on_every_rank_at_every_step(
    method: st3.methods.ST3,
) -> None:
    model = DDP(network(seed=dist.get_rank()))  # DDP makes the ranks agree; the sparsifier comes after it
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, method=method, **SETTINGS)
    for step in range(STEPS):
        learn(model, optimizer, share(batch(step)))
        require_equal_on_all_ranks(model.state_dict(), f"weights after step {step}")
        require_equal_on_all_ranks(raws(sparsifier, optimizer), f"raw weights after step {step}")
        require_equal_on_all_ranks(sparsifier.thresholds, f"thresholds after step {step}")
    assert sparsifier.at_target
    weights = [layer.parameter for layer in sparsifier.layers]
    zeros = sum(int((p == 0).sum()) for p in weights)
    assert zeros == int((sum(p.numel() for p in weights) - 1) * 0.9) + 1
    sparsifier.finalize()


@pytest.mark.parametrize("optimizer_of", [sgd, adamw])
@METHODS
@on_ranks(2)
def test_training_equals_one_process_with_the_same_global_batch(
    method: st3.methods.ST3, optimizer_of: Any
) -> None:
    alone = network(torch.float64)
    together = DDP(copy.deepcopy(alone))
    optimizers = [optimizer_of(alone), optimizer_of(together)]
    sparsifiers = [
        st3.sparsify(model, optimizer, method=method, **SETTINGS)
        for model, optimizer in zip((alone, together), optimizers, strict=True)
    ]
    for step in range(STEPS):
        pair = batch(step, torch.float64)
        learn(alone, optimizers[0], pair)
        learn(together, optimizers[1], share(pair))
        mine, reference = together.module.state_dict(), alone.state_dict()
        torch.testing.assert_close(mine, reference, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(*(raws(s, o) for s, o in zip(sparsifiers, optimizers, strict=True)))
        for name, weight in mine.items():
            assert torch.equal(weight == 0, reference[name] == 0), f"other masks in {name} after step {step}"
    assert sparsifiers[0].finalize() is alone
    assert sparsifiers[1].finalize() is together


@METHODS
@on_ranks(2)
def test_accumulated_micro_batches_under_no_sync_count_as_one_step(method: st3.methods.ST3) -> None:
    alone = network(torch.float64)
    together = DDP(copy.deepcopy(alone))
    optimizers = [sgd(alone), sgd(together)]
    sparsifiers = [
        st3.sparsify(model, optimizer, method=method, ramp="constant", sparsity=0.8, total_steps=3)
        for model, optimizer in zip((alone, together), optimizers, strict=True)
    ]
    for step in range(3):
        for micro in range(3):
            pictures, labels = batch(10 * step + micro, torch.float64)
            nn.functional.cross_entropy(alone(pictures), labels).div(3).backward()
            pictures, labels = share((pictures, labels))
            with nullcontext() if micro == 2 else together.no_sync():
                nn.functional.cross_entropy(together(pictures), labels).div(3).backward()
        norms = [nn.utils.clip_grad_norm_(model.parameters(), 0.05) for model in (alone, together)]
        torch.testing.assert_close(*norms)  # clipping sees the gradient of the raw weights on both sides
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        torch.testing.assert_close(together.module.state_dict(), alone.state_dict(), rtol=1e-8, atol=1e-10)
        require_equal_on_all_ranks(raws(sparsifiers[1], optimizers[1]), f"raw weights after step {step}")
    assert [s.step for s in sparsifiers] == [3, 3]


@pytest.mark.parametrize(
    "options",
    [{"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True}],
    ids=lambda options: next(iter(options)),
)
@on_ranks(2)
def test_every_mode_of_ddp_gives_the_same_weights(options: dict[str, bool]) -> None:
    plain = DDP(network())
    special = DDP(copy.deepcopy(plain.module), **options)
    pairs = [(model, sgd(model)) for model in (plain, special)]
    method = st3.methods.ST3(straight_through=False)
    for model, optimizer in pairs:
        st3.sparsify(model, optimizer, method=method, **SETTINGS)
    for step in range(6):
        for model, optimizer in pairs:
            learn(model, optimizer, share(batch(step)))
        require_equal_on_all_ranks(special.state_dict(), f"weights after step {step}")
        torch.testing.assert_close(special.state_dict(), plain.state_dict(), rtol=0, atol=0)


@METHODS
@pytest.mark.parametrize("optimizer_of", [sgd, adamw])
@on_ranks(2)
def test_resuming_from_the_checkpoint_of_rank_0_is_bit_exact_on_every_rank(
    method: st3.methods.ST3, optimizer_of: Any, tmp_path: Path
) -> None:
    model = DDP(network())
    optimizer = optimizer_of(model)
    st3.sparsify(model, optimizer, method=method, **SETTINGS)
    for step in range(5):
        learn(model, optimizer, share(batch(step)))
    if dist.get_rank() == 0:
        torch.save([model.module.state_dict(), optimizer.state_dict()], tmp_path / "checkpoint.pt")
    dist.barrier()

    fresh = DDP(network(seed=99))
    fresh_optimizer = optimizer_of(fresh)
    sparsifier = st3.sparsify(fresh, fresh_optimizer, method=method, **SETTINGS)
    weights, state = torch.load(tmp_path / "checkpoint.pt")
    fresh.module.load_state_dict(weights)
    fresh_optimizer.load_state_dict(state)
    assert sparsifier.step == 5
    for step in range(5, STEPS):
        learn(model, optimizer, share(batch(step)))
        learn(fresh, fresh_optimizer, share(batch(step)))
        torch.testing.assert_close(fresh.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert sparsifier.step == STEPS


@METHODS
@on_ranks(2)
def test_attached_before_wrapping_while_dense_the_raw_weights_follow_the_broadcast(
    method: st3.methods.ST3,
) -> None:
    model = network(seed=dist.get_rank())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, method=method, **SETTINGS)
    wrapped = DDP(model)  # rank 1 gets the weights of rank 0
    reference = network(seed=0)
    reference_wrapped = DDP(reference)
    reference_optimizer = sgd(reference)
    st3.sparsify(reference_wrapped, reference_optimizer, method=method, **SETTINGS)
    for step in range(STEPS):
        learn(wrapped, optimizer, share(batch(step)))
        learn(reference_wrapped, reference_optimizer, share(batch(step)))
        require_equal_on_all_ranks(raws(sparsifier, optimizer), f"raw weights after step {step}")
        torch.testing.assert_close(model.state_dict(), reference.state_dict(), rtol=0, atol=0)


@on_ranks(2)
def test_attached_before_wrapping_and_sparse_already_a_rank_that_got_other_weights_raises() -> None:
    model = network(seed=dist.get_rank())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=30, ramp="constant")
    wrapped = DDP(model)
    pictures, labels = share(batch(0))
    nn.functional.cross_entropy(wrapped(pictures), labels).backward()
    before = copy.deepcopy(model.state_dict())
    if dist.get_rank() == 0:  # sent its own weights around: nothing is wrong here, until it misses the others
        optimizer.step()
        return
    with pytest.raises(st3.errors.WeightsReplacedError, match=r"layer '0\.weight'.*sparsify after wrapping"):
        optimizer.step()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert sparsifier.step == 0


@on_ranks(2)
def test_attached_before_wrapping_equal_models_train_on_as_if_attached_after() -> None:
    models = [network(), network()]
    optimizers = [sgd(model) for model in models]
    settings = {"sparsity": 0.8, "total_steps": 5, "ramp": "constant"}
    st3.sparsify(models[0], optimizers[0], **settings)
    wrapped = [DDP(model) for model in models]
    st3.sparsify(wrapped[1], optimizers[1], **settings)
    for step in range(5):
        for model, optimizer in zip(wrapped, optimizers, strict=True):
            learn(model, optimizer, share(batch(step)))
        torch.testing.assert_close(models[0].state_dict(), models[1].state_dict(), rtol=0, atol=0)


@on_ranks(2)
def test_layers_have_the_names_of_the_model_inside_the_wrapper() -> None:
    model = DDP(network())
    sparsifier = st3.sparsify(model, sgd(model), **SETTINGS)
    assert [layer.name for layer in sparsifier.layers] == ["0.weight", "2.weight", "5.weight"]


@on_ranks(2)
def test_one_rank_may_ask_for_a_report_without_waiting_for_the_others() -> None:
    model = DDP(network())
    sparsifier = st3.sparsify(model, sgd(model), **SETTINGS)
    if dist.get_rank() == 0:
        report = sparsifier.report(torch.zeros(1, 1, 7, 7))
        assert report.dense_macs == 8 * 9 * 25 + 6 * 8 * 9 * 4 + 240
        assert "Sparsifier(" in repr(sparsifier)


@on_ranks(2)
def test_frozen_masks_stay_and_ranks_stay_equal() -> None:
    model = DDP(network())
    optimizer = sgd(model)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.8, total_steps=8, ramp=cubic(0, 3, 8))
    for step in range(4):
        learn(model, optimizer, share(batch(step)))
    sparsifier.freeze()
    masks = {layer.name: layer.parameter != 0 for layer in sparsifier.layers}
    for step in range(4, 8):
        learn(model, optimizer, share(batch(step)))
        require_equal_on_all_ranks(model.state_dict(), f"weights after step {step}")
    for layer in sparsifier.layers:
        assert torch.equal(layer.parameter != 0, masks[layer.name])
