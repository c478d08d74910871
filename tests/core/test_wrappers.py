"""Models inside the wrappers of other packages: their names are those of the user's model, or they are refused.

Fabric's and Opacus' classes are stand-ins with the names and attributes of the real ones.
"""

import pytest
import torch
import torch.nn.functional as F
from tests.processes import on_ranks
from tests.tiny import TinyNet, batch, sgd
from torch import nn

import st3

NAMES = ["conv.weight", "deep.weight", "head.weight"]


class _FabricModule(nn.Module):
    """Holds the user's model twice, as the real one does."""

    def __init__(self, module):
        super().__init__()
        self._forward_module = module
        self._original_module = module

    def forward(self, x):
        return self._forward_module(x)


class GradSampleModule(nn.Module):
    def __init__(self, module):
        super().__init__()
        self._module = module

    def forward(self, x):
        return self._module(x)


class GradSampleModuleFastGradientClipping(GradSampleModule):
    pass


WRAPPERS = [_FabricModule, GradSampleModule, GradSampleModuleFastGradientClipping]


@pytest.mark.parametrize("wrap", [*WRAPPERS, lambda model: _FabricModule(GradSampleModule(model))])
def test_the_name_of_the_wrapper_is_not_part_of_a_layers_name(wrap):
    assert [layer.name for layer in st3.layers(wrap(TinyNet()))] == NAMES
    assert [layer.name for layer in st3.layers(wrap(TinyNet()), include=["conv", "head"])] == [
        NAMES[0],
        NAMES[2],
    ]
    assert [layer.name for layer in st3.layers(wrap(TinyNet()), exclude="deep")] == [NAMES[0], NAMES[2]]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_a_wrapped_part_of_a_model_does_not_show_in_the_names(wrap):
    model = TinyNet()
    model.deep = wrap(model.deep)
    assert [layer.name for layer in st3.layers(model)] == NAMES


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_a_wrapped_model_trains_as_the_plain_one(wrap):
    plain, model = TinyNet(), TinyNet()
    wrapped = wrap(model)
    trained = []
    for network in (plain, wrapped):
        optimizer = sgd(network.parameters())
        sparsifier = st3.sparsify(
            network, optimizer, sparsity=0.8, total_steps=6, layer_sparsity={"head": 0.5}
        )
        for number in range(6):
            pictures, classes = batch(number)
            F.cross_entropy(network(pictures), classes).backward()
            optimizer.step()
            optimizer.zero_grad()
        sparsifier.finalize()
        trained.append(sparsifier)
    assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), model.parameters(), strict=True))
    assert [row.zeros for row in trained[0].report().rows] == [row.zeros for row in trained[1].report().rows]


@pytest.mark.parametrize("use_orig_params", [False, True])
@on_ranks(2)
def test_fsdp1_is_refused_with_the_name_of_its_successor(use_orig_params):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=use_orig_params)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for call in (
        lambda: st3.sparsify(model, optimizer, sparsity=0.5, total_steps=2),
        lambda: st3.keep_mask(model, optimizer),
        lambda: st3.report(model),
    ):
        with pytest.raises(ValueError) as error:
            call()
        assert str(error.value) == (
            "the model is wrapped in FullyShardedDataParallel (FSDP1), which flattens weights, so that layers and "
            "filters cannot be told apart: shard it with torch.distributed.fsdp.fully_shard (FSDP2) instead"
        )


class GatedExperts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate_up_proj = nn.Parameter(torch.randn(4, 10, 2))
        self.down_proj = nn.Parameter(torch.randn(4, 2, 5))
        with torch.no_grad():
            self.down_proj[1] = 0.0
            self.down_proj[3, 0] = 0.0


@on_ranks(2)
def test_sharding_along_the_experts_leaves_their_filters_whole():
    from torch.distributed.fsdp import fully_shard

    whole, sharded = GatedExperts(), GatedExperts()
    fully_shard(sharded)
    layers = st3.layers(sharded)
    assert [(layer.kind, layer.filters.experts) for layer in layers] == [("FSDPGatedExperts", True)] * 2
    assert all(layer.shards.counts and not layer.shards.filters for layer in layers)
    found = [(row.zeros, row.empty_filters, row.filters) for row in st3.report(sharded).rows]
    assert found == [(row.zeros, row.empty_filters, row.filters) for row in st3.report(whole).rows]
    assert found[1] == (15, 3, 8)
