"""Batch-norm statistics taken anew: by hand, with nothing else touched, over several processes."""

import copy

import pytest
import torch
from tests.processes import on_ranks
from tests.tiny import TinyNet, assert_same, batch, sgd, train
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import st3


def batches(count, first=0):
    return [batch(number)[0] for number in range(first, first + count)]


def statistics_by_hand(model, pictures):
    """The mean over batches of each batch's mean and unbiased variance of what enters the norm of a TinyNet."""
    with torch.no_grad():
        outputs = [model.conv(p).transpose(0, 1).flatten(1).double() for p in pictures]
    return (
        torch.stack([o.mean(1) for o in outputs]).mean(0),
        torch.stack([o.var(1) for o in outputs]).mean(0),
    )


def require_statistics_of(model, pictures):
    mean, variance = statistics_by_hand(model, pictures)
    torch.testing.assert_close(model.norm.running_mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.norm.running_var.double(), variance, rtol=1e-5, atol=1e-6)


def test_the_statistics_are_those_of_the_batches_and_not_of_the_past():
    model = TinyNet()
    train(model, sgd(model.parameters()), 3)
    pictures = [*batches(3), batch(9)[0][:3]]  # a smaller batch counts as much as the others
    assert st3.reestimate_batch_norm(model, pictures) == 4
    require_statistics_of(model, pictures)
    assert int(model.norm.num_batches_tracked) == 4


def test_a_second_norm_sees_what_the_first_one_gives_in_training():
    model = nn.Sequential(nn.BatchNorm1d(1), nn.BatchNorm1d(1))
    st3.reestimate_batch_norm(model, [torch.tensor([[0.0], [10.0]])])
    assert model[0].running_mean.item() == 5.0
    assert model[0].running_var.item() == 50.0
    assert model[1].running_mean.item() == pytest.approx(0.0, abs=1e-6)
    assert model[1].running_var.item() == pytest.approx(2.0, rel=1e-4)  # -1 and 1, unbiased


@pytest.mark.parametrize("wrapped", [tuple, list])
def test_labels_and_everything_after_the_pictures_are_left_alone(wrapped):
    alone, paired = TinyNet(), TinyNet()
    st3.reestimate_batch_norm(alone, batches(2))
    assert st3.reestimate_batch_norm(paired, (wrapped(batch(n)) for n in range(2))) == 2
    assert_same(alone.state_dict(), paired.state_dict())


def test_other_batches_are_run_by_a_function():
    model, plain = TinyNet(), TinyNet()
    found = st3.reestimate_batch_norm(
        model, [{"pixels": p} for p in batches(2)], forward=lambda m, b: m(b["pixels"])
    )
    st3.reestimate_batch_norm(plain, batches(2))
    assert found == 2
    assert_same(model.state_dict(), plain.state_dict())


class Witness(nn.Module):
    def __init__(self):
        super().__init__()
        self.modes = []

    def forward(self, x):
        self.modes.append(self.training)
        return x


def test_only_batch_norms_are_in_training_and_all_modes_and_momenta_come_back():
    dropped = nn.Dropout(0.5)
    model = nn.Sequential(
        nn.BatchNorm1d(4, momentum=0.3), dropped, Witness(), nn.BatchNorm1d(4, momentum=None)
    )
    model.train()
    model[3].eval()
    before = torch.get_rng_state()
    st3.reestimate_batch_norm(model, [torch.randn(8, 4, generator=torch.Generator().manual_seed(0))])
    assert torch.equal(torch.get_rng_state(), before)  # dropout drew nothing
    assert model[2].modes == [False]
    assert [module.training for module in model] == [True, True, True, False]
    assert (model[0].momentum, model[3].momentum) == (0.3, None)


def test_weights_and_gradients_stay_as_they_are():
    model = TinyNet()
    model(batch(0)[0]).sum().backward()
    before = copy.deepcopy([(p.detach(), p.grad) for p in model.parameters()])
    st3.reestimate_batch_norm(model, batches(2))
    assert_same([(p.detach(), p.grad) for p in model.parameters()], before)


def test_most_limits_the_batches_and_leaves_the_others_unread():
    source = iter(batches(5))
    model = TinyNet()
    assert st3.reestimate_batch_norm(model, source, most=2) == 2
    require_statistics_of(model, batches(2))
    assert len(list(source)) == 3
    with pytest.raises(ValueError, match="most must be at least 1 batch, or None for all, got 0"):
        st3.reestimate_batch_norm(model, source, most=0)


@pytest.mark.parametrize(
    "model",
    [nn.Linear(3, 2), nn.Sequential(nn.GroupNorm(1, 3), nn.BatchNorm1d(3, track_running_stats=False))],
    ids=["no norm", "no running statistics"],
)
def test_without_running_statistics_nothing_is_read(model):
    source = iter([torch.ones(2, 3)])
    before = copy.deepcopy(model.state_dict())
    assert st3.reestimate_batch_norm(model, source) == 0
    assert len(list(source)) == 1
    assert_same(model.state_dict(), before)


def test_no_batches_are_refused_and_the_statistics_stay():
    model = TinyNet()
    train(model, sgd(model.parameters()), 2)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(
        ValueError, match=r"no batch came, .* give training batches \(is the iterator used up\?\)"
    ):
        st3.reestimate_batch_norm(model, iter(()))
    assert_same(model.state_dict(), before)


def test_if_a_batch_fails_statistics_and_modes_come_back():
    model = TinyNet().train()
    train(model, sgd(model.parameters()), 2)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(
        TypeError, match=r"a batch must be a tensor, or a pair that begins with one, got dict: say how"
    ):
        st3.reestimate_batch_norm(model, [*batches(1), {"pixels": 0}])
    assert_same(model.state_dict(), before)
    assert model.training
    assert model.norm.momentum == 0.1


def test_a_compiled_or_averaged_model_is_looked_into():
    model, plain = TinyNet(), TinyNet()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    st3.reestimate_batch_norm(averaged, batches(2))
    st3.reestimate_batch_norm(plain, batches(2))
    assert_same(averaged.module.state_dict(), plain.state_dict())


def shares():
    """Three batches for rank 0 and one for rank 1."""
    return batches(3) if dist.get_rank() == 0 else batches(1, first=3)


@on_ranks(2)
def test_every_process_gets_the_mean_over_all_shares():
    model = DistributedDataParallel(TinyNet())
    assert st3.reestimate_batch_norm(model, shares()) == (3 if dist.get_rank() == 0 else 1)
    require_statistics_of(model.module, batches(4))


@on_ranks(2)
def test_a_process_may_have_no_batch_but_not_all_of_them():
    model = DistributedDataParallel(TinyNet())
    st3.reestimate_batch_norm(model, batches(2) if dist.get_rank() == 1 else [])
    require_statistics_of(model.module, batches(2))
    with pytest.raises(ValueError, match="no batch came"):
        st3.reestimate_batch_norm(model, [])


@on_ranks(2)
def test_sharded_models_are_run_whole_and_left_in_shards():
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(TinyNet())
    st3.reestimate_batch_norm(model, batches(2, first=2 * dist.get_rank()))
    assert all(type(p).__name__ == "DTensor" for p in model.parameters())
    whole = TinyNet()
    mean, variance = statistics_by_hand(whole, batches(4))
    torch.testing.assert_close(model.norm.running_mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.norm.running_var.double(), variance, rtol=1e-5, atol=1e-6)
