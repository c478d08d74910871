"""What a logger follows: the sparsifier's metrics as plain numbers."""

import pytest
import torch
from tests.distributed.sharded import rows_network, sgd, sharded
from tests.processes import on_ranks
from torch import nn

import st3


def two_layers() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[0].weight.data.copy_(torch.tensor([[0.1, -0.2], [0.3, 0.4]]))
    model[1].weight.data.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore::st3.errors.LayerCollapseWarning")
def test_metrics_are_plain_numbers_counted_in_the_model():
    model, optimizer = two_layers()
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.5, total_steps=4, ramp="constant")
    metrics = sparsifier.metrics()
    assert metrics == {
        "sparsity": 0.5,
        "sparsity_asked": 0.5,
        "threshold": pytest.approx(0.7),  # halfway from 0.4 to 1.0
        "at_target": 1.0,
        "collapsed_layers": 1.0,
    }
    assert {type(number) for number in metrics.values()} == {float}


def test_before_the_ramp_ends_the_metrics_say_what_is_asked_now():
    model, optimizer = two_layers()
    ramp = st3.ramps.Linear(start=0.0, end=1.0)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.5, total_steps=4, ramp=ramp)
    model(torch.zeros(1, 2)).sum().backward()  # gradients of 0: the raw weights stay
    optimizer.step()
    assert sparsifier.metrics() == {
        "sparsity": 0.125,
        "sparsity_asked": 0.125,
        "threshold": pytest.approx(0.1875),  # 7/8 of the way from 0.1 to 0.2
        "at_target": 0.0,
        "collapsed_layers": 0.0,
    }


def test_a_method_without_a_target_is_asked_for_nothing():
    model, optimizer = two_layers()
    metrics = st3.sparsify(model, optimizer, method="str").metrics()
    assert "sparsity_asked" not in metrics
    assert metrics["at_target"] == 0.0


def test_an_infinite_threshold_is_left_out():
    model, optimizer = two_layers()
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.9, total_steps=4, ramp="constant")
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, -torch.inf)  # diverges
    optimizer.step()
    assert sparsifier.threshold is None
    assert "threshold" not in sparsifier.metrics()


@on_ranks(2)
def test_sharded_weights_are_counted_over_all_processes() -> None:
    alone = rows_network(torch.float32)
    expected = st3.sparsify(alone, sgd(alone), sparsity=0.9, total_steps=3, ramp="constant").metrics()
    model = sharded(rows_network(torch.float32))
    sparsifier = st3.sparsify(model, sgd(model), sparsity=0.9, total_steps=3, ramp="constant")
    assert sparsifier.metrics() == expected
