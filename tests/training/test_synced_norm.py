"""Batch norm over several processes equals batch norm over the whole batch."""

import pytest
import torch
from tests.processes import on_ranks
from torch import distributed as dist
from torch import nn

from st3.training.synced_norm import SyncedBatchNorm, synchronise_norms


@pytest.mark.parametrize("sizes", [(4, 4), (5, 2), (7, 0)], ids=str)
@on_ranks(2)
def test_outputs_gradients_and_statistics_equal_those_of_one_process(sizes):
    torch.manual_seed(1)
    x = torch.randn(sum(sizes), 3, 5, 5, dtype=torch.float64) * 3 + 1
    goal = torch.randn_like(x)
    whole, synced = (nn.BatchNorm2d(3, dtype=torch.float64) for _ in range(2))
    with torch.no_grad():
        for norm in (whole, synced):
            norm.weight.copy_(torch.tensor([1.0, 2.0, -1.0]))
    synchronise_norms(synced, torch.device("cpu"))
    assert type(synced) is SyncedBatchNorm
    inputs = x.clone().requires_grad_()
    expected = whole(inputs)
    (expected * goal).sum().backward()

    start = sizes[0] if dist.get_rank() else 0
    mine = slice(start, start + sizes[dist.get_rank()])
    share = x[mine].clone().requires_grad_()
    found = synced(share)
    (found * goal[mine]).sum().backward()
    dist.all_reduce(synced.weight.grad)
    dist.all_reduce(synced.bias.grad)
    close = {"rtol": 0, "atol": 1e-5}  # the statistics are float32
    torch.testing.assert_close(found, expected[mine], **close)
    torch.testing.assert_close(share.grad, inputs.grad[mine], **close)
    torch.testing.assert_close(synced.weight.grad, whole.weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(synced.bias.grad, whole.bias.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(synced.running_mean, whole.running_mean, **close)
    torch.testing.assert_close(synced.running_var, whole.running_var, **close)
    assert synced.num_batches_tracked == 1
    synced.eval(), whole.eval()
    torch.testing.assert_close(synced(x), whole(x), **close)


def test_names_and_parameters_stay_the_same():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    before = dict(model.named_parameters())
    keys = list(model.state_dict())
    synchronise_norms(model, torch.device("cpu"))
    assert list(model.state_dict()) == keys
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
